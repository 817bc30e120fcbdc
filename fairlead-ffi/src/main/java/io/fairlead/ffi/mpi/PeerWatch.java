package io.fairlead.ffi.mpi;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Sees that the process of a rank on this host has ended. A message library tells nobody: its calls
 * go on waiting. A launcher usually ends all ranks then, seconds later and without a word to them;
 * some are told not to.
 *
 * <p>A process is a number and the time of its start, so that a number that is given again is not
 * taken for it. One that has ended and that nobody asked after, a zombie, counts as ended. Only
 * Linux tells; elsewhere nothing is seen. Ranks on other hosts are not watched.
 *
 * <p>Threads: whoever polls the wire.
 */
final class PeerWatch {
  /** Between two looks at the same rank: what the finding of a death may take. */
  private static final long LOOK_NANOS = 100_000_000;

  private static final Path PROC = Path.of("/proc");

  private final int[] ranks;
  private final List<ProcessId> processes;
  private final Open[] open;
  private final boolean[] ended;
  private final long lookNanos;
  private int next;
  private long nextLook;

  /**
   * A process as others on its host know it.
   *
   * @param host the boot and the space of process numbers that it lives in; 0: unknown
   * @param pid its number there
   * @param start when it began, in the system's ticks
   */
  record ProcessId(long host, long pid, long start) {

    /** This process; with host 0 where the system does not tell. */
    static ProcessId current() {
      try {
        String boot = Files.readString(PROC.resolve("sys/kernel/random/boot_id"));
        String space = Files.readSymbolicLink(PROC.resolve("self/ns/pid")).toString();
        long pid = ProcessHandle.current().pid();
        Stat stat = Stat.of(pid);
        long host = hash(boot + space);
        return stat == null ? new ProcessId(0, pid, 0) : new ProcessId(host, pid, stat.start);
      } catch (IOException | UnsupportedOperationException notLinux) {
        return new ProcessId(0, ProcessHandle.current().pid(), 0);
      }
    }

    private static long hash(String text) {
      long hash = 1;
      for (int i = 0; i < text.length(); i++) {
        hash = hash * 1_000_003 + text.charAt(i);
      }
      return hash == 0 ? 1 : hash;
    }

    @Override
    public String toString() {
      return "process " + pid;
    }
  }

  /**
   * What the system says of a process, kept open: that is asked ten times a second of a rank that
   * has nothing else to do. An open file means the process for which it was opened, also when its
   * number is given again, and cannot be read when that one is gone. Closed by the collector.
   */
  private static final class Open {
    /** Number, name and state stand in front; a name has 15 bytes, also of workers. */
    private static final int BYTES = 96;

    private final byte[] text = new byte[BYTES];

    private final ProcessId process;

    /**
     * No channel: that is closed when a thread that reads it is interrupted. Null where it could
     * not be opened, for want of file numbers, say: then the next look tries again.
     */
    private @Nullable RandomAccessFile file;

    private Open(ProcessId process) {
      this.process = process;
      this.file = open(process);
    }

    static Open of(ProcessId process) {
      return new Open(process);
    }

    private static @Nullable RandomAccessFile open(ProcessId process) {
      try {
        // In this order: what is the process afterwards was it when it was opened.
        RandomAccessFile file =
            new RandomAccessFile(PROC.resolve(process.pid + "/stat").toFile(), "r");
        Stat stat = Stat.of(process.pid);
        return stat != null && stat.start == process.start ? file : null;
      } catch (IOException gone) {
        return null;
      }
    }

    boolean isAlive() {
      RandomAccessFile known = file == null ? open(process) : file;
      file = known;
      if (known == null) {
        return false;
      }
      try {
        known.seek(0);
        int length = known.read(text);
        int at = length - 1;
        while (at >= 0 && text[at] != ')') {
          at--;
        }
        int state = at >= 0 && at + 2 < length ? text[at + 2] : 'X';
        return state != 'Z' && state != 'X';
      } catch (IOException gone) {
        return false;
      }
    }
  }

  /** What the system says of a process. */
  private record Stat(long start) {
    /** Behind the name, which may hold anything: the state is field 3, this is field 22. */
    private static final int START = 22 - 3;

    static @Nullable Stat of(long pid) {
      try {
        String text = Files.readString(PROC.resolve(pid + "/stat"));
        String[] fields = text.substring(text.lastIndexOf(')') + 2).split(" ", -1);
        return new Stat(Long.parseLong(fields[START]));
      } catch (IOException gone) {
        return null;
      }
    }
  }

  /** Watches those of {@code all}, one for each rank, that live on the host of rank {@code me}. */
  PeerWatch(List<ProcessId> all, int me) {
    int[] local = new int[all.size()];
    int count = 0;
    for (int rank = 0; rank < all.size(); rank++) {
      if (rank != me && all.get(rank).host != 0 && all.get(rank).host == all.get(me).host) {
        local[count++] = rank;
      }
    }
    this.ranks = Arrays.copyOf(local, count);
    this.processes = Arrays.stream(ranks).mapToObj(all::get).toList();
    this.open = processes.stream().map(Open::of).toArray(Open[]::new);
    this.ended = new boolean[count];
    this.lookNanos = LOOK_NANOS / Math.max(1, count);
    this.nextLook = System.nanoTime() + lookNanos;
  }

  /**
   * Looks at one rank, if it is time to.
   *
   * @return a rank that was found ended twice, with time between to receive what it had sent; else
   *     -1
   */
  int look(long now) {
    if (ranks.length == 0 || now - nextLook < 0) {
      return -1;
    }
    nextLook = now + lookNanos;
    int index = next;
    next = (next + 1) % ranks.length;
    if (open[index].isAlive()) {
      return -1;
    }
    boolean again = ended[index];
    ended[index] = true;
    return again ? ranks[index] : -1;
  }

  /** The process of a rank that {@link #look} answered. */
  ProcessId process(int rank) {
    return processes.get(Arrays.binarySearch(ranks, rank));
  }
}
