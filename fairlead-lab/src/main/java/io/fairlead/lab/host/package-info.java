/**
 * Benchmarks of the embedded device.
 *
 * <p>Receives a host driver. Hands figures, each with what it is compared with in the same run.
 */
@NullMarked
package io.fairlead.lab.host;

import org.jspecify.annotations.NullMarked;
