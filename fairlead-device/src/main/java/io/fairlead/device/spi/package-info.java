/**
 * The driver interface. Step: device. Receives ordered operations from {@code io.fairlead.device};
 * hands them to whichever driver was found: the embedded host device, CUDA, or a test's own.
 */
@NullMarked
package io.fairlead.device.spi;

import org.jspecify.annotations.NullMarked;
