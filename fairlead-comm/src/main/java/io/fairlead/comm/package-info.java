/**
 * Step "message": active messages, put, get and collectives between ranks.
 *
 * <p>Receives buffers from {@code io.fairlead.memory}, and a transport from {@code
 * io.fairlead.comm.spi}. Hands headers and blobs to the handlers of other ranks.
 */
@NullMarked
package io.fairlead.comm;

import org.jspecify.annotations.NullMarked;
