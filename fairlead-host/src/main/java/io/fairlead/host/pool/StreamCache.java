package io.fairlead.host.pool;

/**
 * What one stream freed and has not reached yet: the stream itself may have it again at once, since
 * whatever it enqueues comes later. Guarded by the pool's lock.
 */
public final class StreamCache {
  final FreeIndex pending = new FreeIndex();
}
