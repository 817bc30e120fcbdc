/**
 * Step "buffer": stream-ordered buffers, the ledger, tiers and spilling.
 *
 * <p>Receives streams and completions from {@code io.fairlead.device}. Hands buffers whose order
 * follows their data to kernels and messages.
 */
@NullMarked
package io.fairlead.memory;

import org.jspecify.annotations.NullMarked;
