/**
 * One seed replays a whole world; contract suites for drivers and transports.
 *
 * <p>Receives implementations of the SPIs. Hands verdicts: each contract kept, or the seed that
 * breaks it.
 */
@NullMarked
package io.fairlead.sim;

import org.jspecify.annotations.NullMarked;
