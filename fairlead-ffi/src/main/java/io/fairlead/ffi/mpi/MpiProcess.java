package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.comm.Launch;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.ffi.posix.ProcessEnvironment;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * MPI in this process. It starts once and ends once, whoever uses it, by MPI's rule.
 *
 * <pre>
 * UNUSED → ON      the first enter(): started here, or found started by somebody else
 *        → FAILED  it could not be started; the next enter() says so again
 * ON     → ENDED   the last leave(), if it was started here; an MPI that was found started is left
 *                  as it is, and stays ON
 * </pre>
 *
 * <p><b>Threads.</b> At SERIALIZED a thread of its own starts and ends MPI, since both must be done
 * by one thread and users come and go. At FUNNELED that is the thread that first entered, and only
 * it may use MPI at all. More than SERIALIZED is never asked for: MULTIPLE is slow or worse in both
 * families when threads meet inside.
 *
 * <pre>
 * field   | writer        | reader | mode, guard
 * on, users, ended, abandoned, failure | enter, leave | same | LOCK
 * </pre>
 */
final class MpiProcess {
  /** {@code serialized}, or {@code funneled} for libraries that cannot more. */
  static final String THREADS_PROPERTY = "fairlead.mpi.threads";

  static final String NO_ACCESS =
      "native access is denied or not there; start Java with"
          + " --enable-native-access=io.fairlead.ffi (or ALL-UNNAMED on the class path)";

  /** Between two looks whether all ranks have met: hardly more than the call itself takes. */
  private static final long FINALIZE_LOOK_NANOS = 1_000_000;

  /** For the last steps of the call, when another rank is through them and gone. */
  private static final long LAST_STEPS_NANOS = 5_000_000_000L;

  private static final System.Logger LOG = System.getLogger("io.fairlead.ffi.mpi");

  private static final int FUNNELED = 1;
  private static final int SERIALIZED = 2;

  private static final ReentrantLock LOCK = new ReentrantLock();
  private static @Nullable MpiProcess on;
  private static int users;
  private static boolean ended;
  private static boolean abandoned;
  private static @Nullable String failure;

  final MpiLibrary library;

  /** At most SERIALIZED. */
  final ThreadLevel level;

  /** The one that may use MPI at FUNNELED; else the one that started it, if we did. */
  final @Nullable Thread starter;

  private final boolean ours;
  private final @Nullable ExecutorService thread;

  /** The largest tag of any communicator. */
  final int tagMax;

  private MpiProcess(
      MpiLibrary library,
      ThreadLevel level,
      @Nullable Thread starter,
      boolean ours,
      @Nullable ExecutorService thread) {
    this.library = library;
    this.level = level;
    this.starter = starter;
    this.ours = ours;
    this.thread = thread;
    this.tagMax = readTagMax(library);
  }

  // --- coming and going -------------------------------------------------------------------------

  /**
   * Starts MPI, or joins those who use it. Blocks while MPI starts: 0.3 to 0.6 s on one host.
   *
   * @throws TransportException LIBRARY: there is none, it does not fit the launcher, it has ended,
   *     or gives another thread only
   */
  static MpiProcess enter() {
    LOCK.lock();
    try {
      if (ended) {
        throw MpiLibrary.refused(
            "MPI has ended in this process, and can start only once: keep what uses it open as long"
                + " as you need it");
      }
      if (failure != null) {
        throw MpiLibrary.refused(failure);
      }
      MpiProcess process = on == null ? startOnce() : on;
      process.requireThread();
      users++;
      return process;
    } finally {
      LOCK.unlock();
    }
  }

  /**
   * The last one to leave ends MPI, if it was started here. Waits for all ranks to get there,
   * unless somebody has {@link #abandon abandoned} it.
   */
  void leave() {
    leave(null);
  }

  /**
   * As the other, and waits no longer for a rank whose process has ended, which came by {@link
   * #abandon}. At FUNNELED it waits even so: the call is this thread's own.
   */
  void leave(@Nullable PeerWatch peers) {
    LOCK.lock();
    try {
      users--;
      if (users == 0 && ours && !abandoned) {
        endAll(peers);
      }
    } finally {
      LOCK.unlock();
    }
  }

  /**
   * As {@link #leave}, when ranks are gone or have failed: MPI will not be ended in this process,
   * since that would wait for them. The launcher ends who is left when this process ends.
   */
  void abandon() {
    LOCK.lock();
    try {
      abandoned = true;
      users--;
    } finally {
      LOCK.unlock();
    }
  }

  /** Ends MPI whatever was said; for a program that knows that all ranks do so. */
  void endAll() {
    endAll(null);
  }

  private void endAll(@Nullable PeerWatch peers) {
    LOCK.lock();
    try {
      ended = true;
      on = null;
      end(peers);
    } finally {
      LOCK.unlock();
    }
  }

  private void requireThread() {
    if (level == ThreadLevel.FUNNELED && Thread.currentThread() != starter) {
      throw MpiLibrary.refused(
          "MPI takes calls of one thread only here ("
              + level
              + "), and that is not this one: have it started with "
              + ThreadLevel.SERIALIZED);
    }
  }

  // --- starting
  // -----------------------------------------------------------------------------------

  private static MpiProcess startOnce() {
    try {
      Launch launch = Launch.current().orElse(null);
      MpiLibrary library = MpiLibrary.find(launch);
      MpiProcess started = isOn(library) ? found(library) : start(library, launch);
      started.probe(launch);
      on = started;
      return started;
    } catch (TransportException e) {
      failure = e.getMessage();
      throw e;
    } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
      // What native access is denied to shows as a class that cannot be initialised.
      throw new TransportException(Reason.LIBRARY, NO_ACCESS, e);
    }
  }

  private static boolean isOn(MpiLibrary library) {
    if (flag(library, "MPI_Finalized", library.api::finalized)) {
      throw MpiLibrary.refused(
          "somebody has ended MPI in this process, and it can start only once");
    }
    return flag(library, "MPI_Initialized", library.api::initialized);
  }

  /** What somebody else has started is used as it is, and never ended. */
  private static MpiProcess found(MpiLibrary library) {
    int given = number(library, "MPI_Query_thread", library.api::queryThread);
    boolean main = flag(library, "MPI_Is_thread_main", library.api::isThreadMain);
    if (given < SERIALIZED && !main) {
      throw MpiLibrary.refused(
          "MPI was started by another thread, for calls of that thread only: start it with"
              + " MPI_THREAD_SERIALIZED, or open the transport on that thread");
    }
    ThreadLevel level = given < SERIALIZED ? ThreadLevel.FUNNELED : ThreadLevel.SERIALIZED;
    return new MpiProcess(library, level, Thread.currentThread(), false, null);
  }

  private static MpiProcess start(MpiLibrary library, @Nullable Launch launch) {
    if (launch == null) {
      // A rank by itself needs no daemon of a launcher, which may not be installed.
      ProcessEnvironment.setIfAbsent("OMPI_MCA_ess_singleton_isolated", "1");
    }
    if (wantsFunneled()) {
      init(library, FUNNELED);
      return new MpiProcess(library, ThreadLevel.FUNNELED, Thread.currentThread(), true, null);
    }
    ExecutorService thread =
        Executors.newSingleThreadExecutor(
            body -> Thread.ofPlatform().daemon().name("fairlead-mpi").unstarted(body));
    return on(
        thread,
        () -> {
          int given = init(library, SERIALIZED);
          if (given < SERIALIZED) {
            throw MpiLibrary.refused(
                library
                    + " takes calls of one thread only; start again with -D"
                    + THREADS_PROPERTY
                    + "=funneled");
          }
          return new MpiProcess(
              library, ThreadLevel.SERIALIZED, Thread.currentThread(), true, thread);
        });
  }

  private static boolean wantsFunneled() {
    String wanted = System.getProperty(THREADS_PROPERTY, "serialized").strip();
    return switch (wanted) {
      case "serialized" -> false;
      case "funneled" -> true;
      default ->
          throw MpiLibrary.refused(
              "property "
                  + THREADS_PROPERTY
                  + " is '"
                  + wanted
                  + "'; it must be serialized or funneled");
    };
  }

  private static int init(MpiLibrary library, int wanted) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment given = arena.allocate(JAVA_INT);
      int status = library.api.initThread(0, 0, wanted, given.address());
      if (status != 0) {
        throw MpiLibrary.refused(
            "MPI_Init_thread of " + library + " failed with " + status + "; see what it printed");
      }
      // From here on an error is an answer; until now it would have ended the process.
      library.check(
          "MPI_Comm_set_errhandler",
          library.api.commSetErrhandler(library.world, library.errorsReturn));
      library.check(
          "MPI_Comm_set_errhandler",
          library.api.commSetErrhandler(library.self, library.errorsReturn));
      return given.get(JAVA_INT, 0);
    }
  }

  // --- ending
  // -------------------------------------------------------------------------------------

  private void end(@Nullable PeerWatch peers) {
    if (thread == null) {
      library.check("MPI_Finalize", library.api.finish());
      return;
    }
    try {
      CompletableFuture<Integer> met = CompletableFuture.supplyAsync(library.api::finish, thread);
      if (peers == null || comes(met, peers)) {
        library.check("MPI_Finalize", met.join());
      }
    } finally {
      thread.shutdown();
    }
  }

  /** Waits for all ranks to meet; false if one has ended and the library does not notice. */
  private static boolean comes(CompletableFuture<Integer> met, PeerWatch peers) {
    int gone = -1;
    long since = 0;
    boolean interrupted = false;
    while (!met.isDone()) {
      LockSupport.parkNanos(met, FINALIZE_LOOK_NANOS);
      interrupted |= Thread.interrupted(); // which ends no wait here
      long now = System.nanoTime();
      int found = gone < 0 ? peers.look(now) : -1;
      if (found >= 0) {
        gone = found;
        since = now;
      }
      if (gone >= 0 && now - since > LAST_STEPS_NANOS) {
        LOG.log(
            System.Logger.Level.WARNING,
            "rank {0} ({1}) has ended without meeting the others in MPI_Finalize, and this rank goes"
                + " on without it: look at what that rank said",
            gone,
            peers.process(gone));
        break;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return met.isDone();
  }

  private static <T> T on(ExecutorService thread, Supplier<T> body) {
    try {
      return CompletableFuture.supplyAsync(body, thread).join();
    } catch (CompletionException e) {
      throw switch (e.getCause()) {
        case RuntimeException cause -> cause;
        case Error cause -> throw cause;
        case null, default -> e;
      };
    }
  }

  // --- what is assumed is tried
  // --------------------------------------------------------------------

  /**
   * Whether the launcher and the library mean the same world, and whether a status lies in memory
   * as its family's does: a message to itself shows both.
   */
  private void probe(@Nullable Launch launch) {
    int size = number(library, "MPI_Comm_size", to -> library.api.commSize(library.world, to));
    if (launch != null && launch.size() != size) {
      throw MpiLibrary.refused(
          launch.launcher()
              + " started "
              + launch.size()
              + " ranks, but "
              + library
              + " knows of "
              + size
              + ": it is not the library of this launcher. Start with that library's own launcher, or"
              + " name the launcher's library with -D"
              + MpiLibrary.PROPERTY
              + "=PATH");
    }
    probeStatus();
  }

  private void probeStatus() {
    int bytes = 13;
    int tag = 29;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment data = arena.allocate(bytes + 1, Long.BYTES);
      MemorySegment into = arena.allocate(bytes + 1, Long.BYTES);
      data.set(JAVA_BYTE, bytes - 1, (byte) 7);
      MemorySegment requests = arena.allocate(2L * Long.BYTES, Long.BYTES);
      MemorySegment statuses = arena.allocate(2L * library.flavour.statusBytes, Long.BYTES);
      long first = requests.address();
      library.check(
          "MPI_Irecv",
          library.api.irecv(into.address(), bytes + 1, library.bytes, 0, tag, library.self, first));
      library.check(
          "MPI_Isend",
          library.api.isend(
              data.address(),
              bytes,
              library.bytes,
              0,
              tag,
              library.self,
              first + library.flavour.handleBytes));
      MemorySegment count = arena.allocate(JAVA_INT);
      MemorySegment indices = arena.allocate(JAVA_INT, 2);
      boolean same = false;
      for (int done = 0; done < 2; done += count.get(JAVA_INT, 0)) {
        library.check(
            "MPI_Testsome",
            library.api.testsome(2, first, count.address(), indices.address(), statuses.address()));
        for (int i = 0; i < count.get(JAVA_INT, 0); i++) {
          long at = (long) i * library.flavour.statusBytes;
          if (indices.getAtIndex(JAVA_INT, i) == 0) {
            same =
                library.flavour.source(statuses, at) == 0
                    && library.flavour.tag(statuses, at) == tag
                    && library.flavour.count(statuses, at) == bytes
                    && into.get(JAVA_BYTE, bytes - 1) == 7;
          }
        }
      }
      if (!same) {
        throw MpiLibrary.refused(
            library
                + " lays a status out in memory in a way that is not known, so messages could not be"
                + " told apart; name another library with -D"
                + MpiLibrary.PROPERTY
                + "=PATH");
      }
    }
  }

  private static int readTagMax(MpiLibrary library) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(JAVA_LONG);
      MemorySegment flag = arena.allocate(JAVA_INT);
      library.check(
          "MPI_Comm_get_attr",
          library.api.commGetAttr(
              library.world, library.flavour.tagMaxKey, value.address(), flag.address()));
      if (flag.get(JAVA_INT, 0) == 0) {
        return 32_767; // the least that MPI promises
      }
      long address = value.get(JAVA_LONG, 0);
      return MemorySegment.ofAddress(address).reinterpret(Integer.BYTES).get(JAVA_INT, 0);
    }
  }

  /** A question with one int as its answer. */
  interface Question {
    int ask(long answer);
  }

  static int number(MpiLibrary library, String call, Question question) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(JAVA_INT);
      int status = question.ask(answer.address());
      if (status != 0) {
        throw MpiLibrary.refused(call + " of " + library + " failed with " + status);
      }
      return answer.get(JAVA_INT, 0);
    }
  }

  private static boolean flag(MpiLibrary library, String call, Question question) {
    return number(library, call, question) != 0;
  }
}
