package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.ffi.mpi.PeerWatch.ProcessId;
import io.fairlead.ffi.posix.Futex;
import io.fairlead.ffi.posix.NamelessFile;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.security.SecureRandom;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * How ranks come to share the memory of a {@link Doorbell}, or agree that there is none: it is on
 * all of them or on none, since a rank that one peer cannot wake must not sleep.
 *
 * <pre>
 * LOOKING    all on one host, by the cards? If not, nobody asks any further
 *   → MAKING     rank 0 makes the memory; all say whether they want it, rank 0 where it is
 *   → MAPPING    the others map it; all say whether they could
 *   → FITTED     nobody can find it any more; it goes with the last of the processes
 *   → NONE       somebody does not want it, or could not: the loops nap
 * </pre>
 *
 * The memory is a file without a name, so nothing is left of it however ranks end.
 *
 * <p>Threads: the one that introduces the ranks. Waits for the others, as long as that does.
 */
final class DoorbellFitting {
  /** {@code on}, or {@code off}: loops that have nothing to do nap, and look again and again. */
  static final String PROPERTY = "fairlead.mpi.doorbell";

  private static final System.Logger LOG = System.getLogger("io.fairlead.ffi.mpi");

  // what ranks say: yes or no, and rank 0 where its memory is
  private static final int YES_AT = 0;
  private static final int NUMBER_AT = 4;
  private static final int MARK_AT = 8;
  private static final int WORD_BYTES = 16;

  /** Gives everybody what everybody says, one rank's after the other's. */
  interface Exchange {
    MemorySegment all(MemorySegment mine);
  }

  private final Exchange exchange;
  private final List<ProcessId> processes;
  private final int rank;
  private final int size;

  private DoorbellFitting(Exchange exchange, List<ProcessId> processes, int rank) {
    this.exchange = exchange;
    this.processes = processes;
    this.rank = rank;
    this.size = processes.size();
  }

  /**
   * Agrees with the other ranks, all of which do the same.
   *
   * @return null: there is none, on no rank
   */
  static @Nullable Doorbell fit(Exchange exchange, List<ProcessId> processes, int rank) {
    return fit(exchange, processes, rank, isWanted());
  }

  /** The same, whatever the setting says. */
  static @Nullable Doorbell fit(
      Exchange exchange, List<ProcessId> processes, int rank, boolean wanted) {
    if (processes.size() == 1) {
      return wanted ? Doorbell.alone() : null;
    }
    long host = processes.getFirst().host();
    if (host == 0 || processes.stream().anyMatch(each -> each.host() != host)) {
      if (rank == 0) {
        LOG.log(
            System.Logger.Level.INFO,
            "not all ranks are known to be on one host, so ranks that have nothing to do cannot be"
                + " woken by a message: they nap, 0.7 ms at most");
      }
      return null;
    }
    MemorySegment words = new DoorbellFitting(exchange, processes, rank).agree(wanted);
    return words == null ? null : new Doorbell(words, rank, processes.size());
  }

  private static boolean isWanted() {
    String wanted = System.getProperty(PROPERTY, "on").strip();
    return switch (wanted) {
      case "on" -> true;
      case "off" -> false;
      default ->
          throw MpiLibrary.refused(
              "property " + PROPERTY + " is '" + wanted + "'; it must be on or off");
    };
  }

  private @Nullable MemorySegment agree(boolean wanted) {
    NamelessFile made = wanted && rank == 0 ? make() : null;
    try {
      boolean may = wanted && (rank == 0 ? made != null : canWait());
      long mark = made == null ? 0 : made.memory().get(JAVA_LONG, 0);
      MemorySegment said = all(may, made == null ? -1 : made.number(), mark);
      if (!isYes(said)) {
        return null;
      }
      MemorySegment words = made == null ? map(said) : made.memory();
      return isYes(all(words != null, -1, 0)) ? words : null;
    } finally {
      if (made != null) {
        made.close(); // all have it, or nobody needs it
      }
    }
  }

  private static boolean canWait() {
    String missing = missingFutex();
    if (!missing.isEmpty()) {
      sayNone(missing);
    }
    return missing.isEmpty();
  }

  private @Nullable NamelessFile make() {
    if (!canWait()) {
      return null;
    }
    try {
      return NamelessFile.create(Doorbell.bytes(size), new SecureRandom().nextLong());
    } catch (IOException | RuntimeException | LinkageError failure) {
      sayNone(unmade(failure));
      return null;
    }
  }

  /** Why ranks of this host cannot wake each other; empty if they can. */
  static String missing() {
    if (!isWanted()) {
      return "-D" + PROPERTY + "=off says so";
    }
    String futex = missingFutex();
    if (!futex.isEmpty()) {
      return futex;
    }
    try (NamelessFile _ = NamelessFile.create(Doorbell.bytes(1), 1)) {
      return "";
    } catch (IOException | RuntimeException | LinkageError failure) {
      return unmade(failure);
    }
  }

  private static String unmade(Throwable failure) {
    return "memory that ranks share cannot be made (" + failure.getMessage() + ")";
  }

  private static String missingFutex() {
    try {
      return Futex.isAvailable() ? "" : "the system has no futex";
    } catch (RuntimeException | LinkageError failure) {
      return "the system's futex cannot be called (" + failure.getMessage() + ")";
    }
  }

  /** What rank 0 has made, as it said. */
  private @Nullable MemorySegment map(MemorySegment said) {
    ProcessId maker = processes.getFirst();
    try {
      return NamelessFile.open(
          maker.pid(),
          said.get(JAVA_INT, NUMBER_AT),
          Doorbell.bytes(size),
          said.get(JAVA_LONG, MARK_AT));
    } catch (IOException | RuntimeException failure) {
      sayNone("the memory of " + maker + " cannot be mapped (" + failure.getMessage() + ")");
      return null;
    }
  }

  private static void sayNone(String why) {
    LOG.log(
        System.Logger.Level.WARNING,
        why
            + ", so ranks that have nothing to do cannot be woken by a message: all of them nap,"
            + " 0.7 ms at most; -D"
            + PROPERTY
            + "=off says so without a word");
  }

  private MemorySegment all(boolean yes, int number, long mark) {
    MemorySegment mine = Arena.ofAuto().allocate(WORD_BYTES, Long.BYTES);
    mine.set(JAVA_INT, YES_AT, yes ? 1 : 0);
    mine.set(JAVA_INT, NUMBER_AT, number);
    mine.set(JAVA_LONG, MARK_AT, mark);
    return exchange.all(mine);
  }

  private boolean isYes(MemorySegment said) {
    boolean yes = true;
    for (int each = 0; each < size; each++) {
      yes &= said.get(JAVA_INT, (long) each * WORD_BYTES + YES_AT) == 1;
    }
    return yes;
  }
}
