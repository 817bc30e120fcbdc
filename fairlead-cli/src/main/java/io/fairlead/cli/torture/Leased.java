package io.fairlead.cli.torture;

import java.util.concurrent.ConcurrentLinkedQueue;

/** Leases and holds that any task may end, not only the one that took them. Any thread. */
final class Leased {
  /** One of them. */
  static final class Entry {
    private final AutoCloseable what;
    private volatile boolean open = true;

    private Entry(AutoCloseable what) {
      this.what = what;
    }

    /** Stays true while it is being ended. */
    boolean isOpen() {
      return open;
    }
  }

  private final ConcurrentLinkedQueue<Entry> entries = new ConcurrentLinkedQueue<>();

  Entry add(AutoCloseable what) {
    Entry entry = new Entry(what);
    entries.add(entry);
    return entry;
  }

  /** Ends the one that is open longest; says whether there was one. */
  boolean endOne() {
    Entry entry = entries.poll();
    if (entry == null) {
      return false;
    }
    try {
      entry.what.close();
    } catch (RuntimeException failure) {
      throw failure;
    } catch (Exception impossible) {
      throw new AssertionError("leases and holds declare none", impossible);
    } finally {
      entry.open = false;
    }
    return true;
  }

  void endAll() {
    while (endOne()) {
      Thread.onSpinWait();
    }
  }
}
