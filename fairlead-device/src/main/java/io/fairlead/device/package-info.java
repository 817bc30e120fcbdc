/**
 * Steps "place" and "stream": devices, contexts, streams, events and completions.
 *
 * <p>Receives tasks from {@code io.fairlead.task}, and a driver from {@code
 * io.fairlead.device.spi}. Hands ordered streams and completions to memory and messages.
 *
 * <p>Start at {@link io.fairlead.device.DeviceContext} (one device as all tasks share it), then
 * {@link io.fairlead.device.DeviceStream} (ordered work), {@link io.fairlead.device.Mark} (a
 * position in it) and {@link io.fairlead.device.Operand} (what the work is done on). A kernel comes
 * from a {@link io.fairlead.device.ModuleSource}, which is made of {@link
 * io.fairlead.device.spi.ModuleImage images}, and runs over a {@link io.fairlead.device.spi.Grid}:
 * those two are the only types of the driver interface that users of devices need. Many operations
 * become one in a {@link io.fairlead.device.DeviceGraph}. How order is kept is told in {@code
 * StreamCore}, how waiters are woken in {@code Waiters}, whom the driver is asked about in {@code
 * Asks}, how foreign code that knows no streams gets into the order in {@code ForeignThreads}.
 */
@NullMarked
package io.fairlead.device;

import org.jspecify.annotations.NullMarked;
