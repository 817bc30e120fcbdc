/**
 * The driver interface. Step: device. Receives ordered operations from {@code io.fairlead.device};
 * hands them to whichever driver was found: the embedded host device, CUDA, or a test's own.
 *
 * <p>For who writes drivers, except {@link io.fairlead.device.spi.Grid} and {@link
 * io.fairlead.device.spi.ModuleImage} with its {@link io.fairlead.device.spi.JavaKernel}, which
 * users of devices make and drivers receive as they are.
 */
@NullMarked
package io.fairlead.device.spi;

import org.jspecify.annotations.NullMarked;
