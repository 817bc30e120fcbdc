/**
 * Steps "place" and "stream": devices, contexts, streams, events and completions.
 *
 * <p>Receives tasks from {@code io.fairlead.task}, and a driver from {@code
 * io.fairlead.device.spi}. Hands ordered streams and completions to memory and messages.
 */
@NullMarked
package io.fairlead.device;

import org.jspecify.annotations.NullMarked;
