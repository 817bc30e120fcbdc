/**
 * The embedded device: real execution on the CPU under a GPU's rules.
 *
 * <p>Receives driver calls by {@code io.fairlead.device.spi}. Hands results, signals and faults
 * back, as a GPU driver would.
 */
@NullMarked
package io.fairlead.host;

import org.jspecify.annotations.NullMarked;
