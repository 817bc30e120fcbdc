package io.fairlead.cli.torture;

import io.fairlead.cli.Bytes;
import io.fairlead.cli.ExitCode;
import io.fairlead.cli.HangWatch;
import io.fairlead.cli.OptionChecks;
import io.fairlead.cli.Version;
import io.fairlead.memory.Device;
import io.fairlead.runtime.DriverUnavailableException;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;

/** {@code fairlead torture}: looks for faults of a device's memory, for as long as it is told. */
@Command(
    name = "torture",
    description = {
      "Uses little device memory for much, in every way there is, with failures on purpose, and"
          + " compares all that comes back with what was written.",
      "Runs seed after seed, each on a device that is opened anew, until the time is over or"
          + " something is wrong."
    },
    footer = {
      "",
      "Exit codes: 0 nothing found, 2 usage, 4 something was wrong (the seed is said), 70 it did not"
          + " end, 69 it could not be started."
    },
    mixinStandardHelpOptions = true,
    sortOptions = false,
    versionProvider = Version.class)
public final class TortureCommand implements Callable<Integer> {
  private static final long MEMORY_MIN = 1 << 20;
  private static final long MEMORY_MAX = 8L << 30;

  private static final long PATIENCE_MAX = 24 * 3600;

  private static final int MINUTES_MAX = 60 * 24 * 7;

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Option(
      names = "--minutes",
      paramLabel = "N",
      defaultValue = "1",
      description = "Begin no more seeds after so long; 0 is one seed (default ${DEFAULT-VALUE}).")
  private double minutes;

  @Option(
      names = "--seed",
      paramLabel = "N",
      defaultValue = "1",
      description = "The first one; the next ones follow (default ${DEFAULT-VALUE}).")
  private long seed;

  @Option(
      names = "--device",
      paramLabel = "D",
      defaultValue = "auto",
      description = "auto, host or cuda (default ${DEFAULT-VALUE}).")
  private String device = "auto";

  @Option(
      names = "--device-memory",
      paramLabel = "SIZE",
      defaultValue = "8M",
      converter = Bytes.Converter.class,
      description = "How much of it is used, from 1M to 8G (default ${DEFAULT-VALUE}).")
  private long memory;

  @Option(
      names = "--patience",
      paramLabel = "SECONDS",
      defaultValue = "360",
      description =
          "A seed takes seconds, on a busy machine some more. One that takes longer than this hangs:"
              + " what its threads do is said, and the command ends (default ${DEFAULT-VALUE}).")
  private long patience;

  @Option(
      names = "--directory",
      paramLabel = "FOLDER",
      description = "Where buffers go on to (default: a new one in the temporary folder).")
  private @Nullable Path directory;

  /** Made by the command line parser. */
  public TortureCommand() {}

  @Override
  public Integer call() throws IOException {
    CommandLine line = Objects.requireNonNull(spec).commandLine();
    OptionChecks checks = new OptionChecks(line);
    checks.require(
        minutes >= 0 && minutes <= MINUTES_MAX,
        "--minutes takes 0 to " + MINUTES_MAX + ", not " + minutes);
    checks.require(
        memory >= MEMORY_MIN && memory <= MEMORY_MAX,
        "--device-memory takes 1M to 8G, not " + Bytes.text(memory));
    checks.require(
        patience >= 1 && patience <= PATIENCE_MAX,
        "--patience takes 1 to " + PATIENCE_MAX + " seconds, not " + patience);
    Path given = directory;
    checks.require(
        given == null || (Files.isDirectory(given) && Files.isWritable(given)),
        "--directory: " + given + " is no folder that can be written; make it first");
    String which = checks.device(device);
    checks.requireSettings();
    Path folder = given == null ? Files.createTempDirectory("fairlead-torture") : given;
    try {
      return run(
          new Round.Plan(which, memory, folder, Round.Plan.ACTORS, Round.Plan.STEPS),
          line.getOut(),
          line.getErr());
    } finally {
      if (given == null) {
        Files.deleteIfExists(folder);
      }
    }
  }

  private int run(Round.Plan plan, PrintWriter out, PrintWriter err) throws IOException {
    long end = System.nanoTime() + (long) (minutes * 60e9);
    Tally all = new Tally();
    Leftovers leftovers = new Leftovers(plan.directory());
    long next = seed;
    do {
      long begin = System.nanoTime();
      err.println("seed " + next + ": " + Round.describe(next));
      err.flush();
      AtomicReference<@Nullable Device> opened = new AtomicReference<>();
      try (HangWatch _ =
              HangWatch.start(
                  "seed " + next, Duration.ofSeconds(patience), () -> state(opened.get()), err);
          LogWatch log = LogWatch.begin(err)) {
        Tally tally = Round.run(next, plan, opened::set);
        log.require();
        leftovers.require();
        all.add(tally);
        err.println(
            String.format(
                Locale.ROOT,
                "seed %d: %.1f s, %s; %s",
                next,
                (System.nanoTime() - begin) / 1e9,
                tally,
                leftovers));
        err.flush();
      } catch (DriverUnavailableException absent) {
        throw absent; // that is no fault
      } catch (RuntimeException failure) {
        err.println(
            "seed "
                + next
                + " failed; again: fairlead torture --minutes 0 --seed "
                + next
                + " --device "
                + plan.device()
                + " --device-memory "
                + plan.memory());
        failure.printStackTrace(err);
        err.flush();
        return ExitCode.FAILURE;
      }
      next++;
    } while (System.nanoTime() - end < 0);
    out.println("seeds " + seed + " to " + (next - 1) + ": nothing wrong; " + all);
    out.flush();
    return ExitCode.OK;
  }

  private static String state(@Nullable Device device) {
    return device == null
        ? "no device is open"
        : device.memory() + System.lineSeparator() + device.context().stats();
  }

  /** What a process has, which must not grow from round to round. Used by one thread. */
  static final class Leftovers {
    private static final Path OPEN_FILES = Path.of("/proc/self/fd");

    /** Threads of the JDK's pools come and go. */
    private static final int THREADS_MORE = 16;

    private static final int FILES_MORE = 16;
    private static final long SETTLE_NANOS = 20_000_000_000L;
    private static final long LOOK_NANOS = 1_000_000;

    private final Path directory;
    private int threadsFirst = -1;
    private long filesFirst = -1;
    private int threads;
    private long files;

    Leftovers(Path directory) {
      this.directory = directory;
    }

    /**
     * After a round.
     *
     * @throws TortureFailedException if there is more than after the first one
     */
    void require() throws IOException {
      try (Stream<Path> there = Files.list(directory)) {
        if (there.findAny().isPresent()) {
          throw new TortureFailedException("files are left in " + directory, null);
        }
      }
      long end = System.nanoTime() + SETTLE_NANOS;
      look();
      while (isMore() && System.nanoTime() - end < 0) {
        LockSupport.parkNanos(LOOK_NANOS);
        look();
      }
      if (threadsFirst < 0) {
        threadsFirst = threads;
        filesFirst = files;
      }
      if (isMore()) {
        throw new TortureFailedException(
            "after the first round there were "
                + threadsFirst
                + " threads and "
                + filesFirst
                + " open files, now "
                + threads
                + " and "
                + files
                + ": "
                + Thread.getAllStackTraces().keySet(),
            null);
      }
    }

    private boolean isMore() {
      return threadsFirst >= 0
          && (threads > threadsFirst + THREADS_MORE || files > filesFirst + FILES_MORE);
    }

    private void look() throws IOException {
      threads = Thread.getAllStackTraces().size();
      files = 0;
      if (Files.isDirectory(OPEN_FILES)) {
        try (Stream<Path> open = Files.list(OPEN_FILES)) {
          files = open.count();
        }
      }
    }

    @Override
    public String toString() {
      long heap = Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
      return threads + " threads, " + files + " open files, " + (heap >> 20) + " MiB of heap";
    }
  }
}
