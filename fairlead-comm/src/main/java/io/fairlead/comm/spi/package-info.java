/**
 * What a message transport must provide; no logic.
 *
 * <p>Receives calls from {@code io.fairlead.comm}. Hands status, capabilities and arrived messages
 * back.
 */
@NullMarked
package io.fairlead.comm.spi;

import org.jspecify.annotations.NullMarked;
