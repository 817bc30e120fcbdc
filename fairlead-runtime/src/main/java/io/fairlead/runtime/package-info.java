/**
 * The front door: it wires task, device, memory and comm together.
 *
 * <p>Receives a configuration from the user. Hands an open runtime, its report and its orderly
 * shutdown.
 *
 * <p>{@link io.fairlead.runtime.Fairlead} is the way in; {@code DriverChoice} finds the driver and
 * remembers why it was taken.
 */
@NullMarked
package io.fairlead.runtime;

import org.jspecify.annotations.NullMarked;
