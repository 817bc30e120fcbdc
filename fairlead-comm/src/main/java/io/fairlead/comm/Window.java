package io.fairlead.comm;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Memory of this rank's that peers may put into and get from, for as long as it is open. Made by
 * {@link Comm#expose}; its key is sent to whoever is to use it. A key is never used for other
 * memory later: whoever comes with the key of a closed window is told so.
 *
 * <p>Puts and gets take no part in any order: when one has ended, and only then, its bytes lie
 * where they belong. The owner of the memory learns of it by a message that is sent after that. Two
 * copies that meet in the same bytes leave either's there.
 *
 * <p>The only state is whether it was closed, moved once.
 */
public final class Window implements AutoCloseable {
  private final CommEngine engine;
  private final long key;
  private final long bytes;
  private final AtomicBoolean closed = new AtomicBoolean();

  Window(CommEngine engine, long key, long bytes) {
    this.engine = engine;
    this.key = key;
    this.bytes = bytes;
  }

  /** What peers name it by. Any thread; never blocks. */
  public long key() {
    return key;
  }

  /** Its length. Any thread; never blocks. */
  public long bytes() {
    return bytes;
  }

  /**
   * Ends it: later copies fail at the rank that asks for them. A copy that has begun goes on to its
   * end, so memory that is to be used otherwise is closed after the peers have said that they are
   * done. Any thread; never blocks; twice is harmless.
   */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      engine.conceal(key);
    }
  }

  @Override
  public String toString() {
    return "Window[" + bytes + " bytes of rank " + engine.rank() + ", key " + key + "]";
  }
}
