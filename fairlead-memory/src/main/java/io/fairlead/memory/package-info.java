/**
 * Step "buffer": stream-ordered buffers, the ledger, tiers and spilling.
 *
 * <p>Receives streams and completions from {@code io.fairlead.device}. Hands buffers whose order
 * follows their data to kernels and messages.
 *
 * <p>{@link io.fairlead.memory.Device} is the way in. {@code Storage} is the ledger: who used which
 * memory, up to where. A {@code Pool} says where memory comes from: {@code DriverPool} from the
 * driver, {@code FrontierPool} from what was closed before, with the uses that it inherits. {@code
 * Budget} decides who may have how many bytes and who waits, {@code Reclaimer} knows when the
 * device has given them back, {@code Adoption} when others' memory goes back. {@code Transfers}
 * moves bytes between Java and the device through the pinned pieces of {@code Staging}.
 *
 * <p>What does not fit goes below and comes back: {@code Spiller} chooses what leaves the device,
 * {@code Returns} brings back what an operation needs, {@code HostTier} and {@code DiskTier} keep
 * the {@code Image}s of what is not there. {@code docs/decisions/0010} says how these fit together.
 *
 * <p>Where all that leads nowhere, {@code Ladder} finds it out, and says who gives way: a {@code
 * Try} of {@link io.fairlead.memory.Oom}, or else somebody fails with the {@code MemoryReport}.
 *
 * <p>Lock order of the package: a stream's turn, then a storage's lock. The budget's lock and the
 * storage's lock are leaves: nothing is called under them.
 */
@NullMarked
package io.fairlead.memory;

import org.jspecify.annotations.NullMarked;
