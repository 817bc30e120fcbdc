/**
 * The root of every error that Fairlead throws; it belongs to no step, since each of them fails.
 *
 * <p>Receives a cause, and what was being done. Hands one exception with severity, operation and
 * cause.
 */
@NullMarked
package io.fairlead.fault;

import org.jspecify.annotations.NullMarked;
