/**
 * A transport over anything that moves packets and bulk memory between ranks: {@code WireTransport}
 * holds the protocol, a {@link io.fairlead.comm.wire.Wire} holds the library. A new message library
 * needs a wire and nothing else.
 */
@NullMarked
package io.fairlead.comm.wire;

import org.jspecify.annotations.NullMarked;
