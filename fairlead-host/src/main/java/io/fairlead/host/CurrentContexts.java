package io.fairlead.host;

import io.fairlead.device.spi.OsThreads;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.jspecify.annotations.Nullable;

/**
 * Which context is current on which operating-system thread.
 *
 * <p>A table of short chains, one entry for each thread that ever made a context current. Only its
 * own thread changes an entry's context, except that an idle entry (0) may be swept when a chain
 * grows long: its context goes from 0 to {@link #DEAD} by compare and set, and the thread, should
 * it come back, makes a new one.
 *
 * <pre>
 *   0 --own thread--> context --own thread--> 0 --any thread, sweeping--> DEAD
 * </pre>
 */
final class CurrentContexts {
  private static final Logger LOG = System.getLogger("io.fairlead.host");
  private static final AtomicBoolean SAID = new AtomicBoolean();

  private static final int CHAINS = 256;
  private static final int CHAIN_LENGTH_SWEPT = 8;
  private static final long DEAD = -1;

  private static final VarHandle CONTEXT;

  static {
    try {
      CONTEXT = MethodHandles.lookup().findVarHandle(Entry.class, "context", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private static final class Entry {
    final long thread;
    final @Nullable Entry next;

    /** Written by its thread; read by sweepers: volatile, so that none sweeps a used entry. */
    private volatile long context;

    Entry(long thread, long context, @Nullable Entry next) {
      this.thread = thread;
      this.context = context;
      this.next = next;
    }
  }

  private final OsThreads threads;
  private final AtomicReferenceArray<@Nullable Entry> chains = new AtomicReferenceArray<>(CHAINS);

  CurrentContexts(OsThreads threads) {
    this.threads = threads;
  }

  /** With the installed {@link OsThreads}; else per Java thread, said once in the log. */
  static CurrentContexts installed() {
    Optional<OsThreads> found = find();
    if (found.isEmpty() && SAID.compareAndSet(false, true)) {
      LOG.log(
          Level.INFO,
          "The host device keeps current contexts per Java thread, not per OS thread as a GPU does:"
              + " no OsThreads provider works here (to have one, add fairlead-ffi and"
              + " --enable-native-access=io.fairlead.ffi, or =ALL-UNNAMED on the class path).");
    }
    return new CurrentContexts(found.orElse(() -> Thread.currentThread().threadId()));
  }

  private static Optional<OsThreads> find() {
    for (ServiceLoader.Provider<OsThreads> provider :
        ServiceLoader.load(OsThreads.class, CurrentContexts.class.getClassLoader()).stream()
            .toList()) {
      try {
        OsThreads threads = provider.get();
        threads.current();
        return Optional.of(threads);
      } catch (java.util.ServiceConfigurationError | UnsupportedOperationException e) {
        LOG.log(Level.DEBUG, "An OsThreads provider does not work here", e);
      }
    }
    return Optional.empty();
  }

  /** The context handle last made current on this OS thread, or 0. */
  long get() {
    long thread = threads.current();
    Entry entry = find(thread);
    return entry == null ? 0 : Math.max(0, entry.context);
  }

  void set(long context) {
    long thread = threads.current();
    Entry entry = find(thread);
    if (entry != null && change(entry, context)) {
      return;
    }
    if (context != 0) {
      insert(thread, context);
    }
  }

  private static boolean change(Entry entry, long context) {
    long old = entry.context;
    if (old > 0) {
      entry.context = context; // nobody else touches an entry that is in use
      return true;
    }
    return old == 0 && CONTEXT.compareAndSet(entry, 0L, context);
  }

  private @Nullable Entry find(long thread) {
    for (Entry e = chains.get(chain(thread)); e != null; e = e.next) {
      if (e.thread == thread && e.context != DEAD) {
        return e;
      }
    }
    return null;
  }

  private void insert(long thread, long context) {
    int chain = chain(thread);
    while (true) {
      Entry head = chains.get(chain);
      Entry kept = length(head) < CHAIN_LENGTH_SWEPT ? head : sweep(head);
      if (chains.compareAndSet(chain, head, new Entry(thread, context, kept))) {
        return;
      }
    }
  }

  private static int length(@Nullable Entry head) {
    int length = 0;
    for (Entry e = head; e != null; e = e.next) {
      length++;
    }
    return length;
  }

  /**
   * A copy of the chain's start would split an entry in two, so sweeping drops a prefix only: idle
   * entries from the head on. What lies behind is swept when it comes to the front.
   */
  private static @Nullable Entry sweep(@Nullable Entry head) {
    Entry e = head;
    while (e != null && (e.context == DEAD || CONTEXT.compareAndSet(e, 0L, DEAD))) {
      e = e.next;
    }
    return e;
  }

  /** For tests: how many entries there are. */
  int entries() {
    int entries = 0;
    for (int chain = 0; chain < CHAINS; chain++) {
      entries += length(chains.get(chain));
    }
    return entries;
  }

  private static int chain(long thread) {
    return (int) ((thread * 0x9E3779B97F4A7C15L) >>> 56);
  }
}
