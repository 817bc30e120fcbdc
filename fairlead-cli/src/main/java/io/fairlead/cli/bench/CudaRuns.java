package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletionService;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.jspecify.annotations.Nullable;

/**
 * The processes that {@link CudaSuite} measures in, and the samples that they gave. One that fails,
 * or does not end in time, is told to the person who waits, and counted; the others go on.
 *
 * <p>Confined to the thread that measures.
 */
final class CudaRuns {
  /** For a process to start, to say where it hangs, and to end. */
  static final Duration STARTS_AND_ENDS = Duration.ofSeconds(30);

  private static final String NOT_HERE = "not here";
  private static final String NO_BASELINE = "no baseline";

  private final CudaPeer c;

  /** Kernels in place of this program's own, for a driver that takes no PTX. */
  private final @Nullable Path image;

  private final Progress progress;

  /** By who measured and what: {@code c.jdk wait.20}; one entry for each process. */
  private final Map<String, List<Samples>> samples = new HashMap<>();

  private int failed;
  private boolean cIsMissing;
  private @Nullable String why;

  CudaRuns(CudaPeer c, @Nullable Path image, Progress progress) {
    this.c = c;
    this.image = image;
    this.progress = progress;
  }

  /** Says something that was found. */
  void say(String what) {
    progress.done(what);
  }

  /** Says what begins now. */
  void begin(String what) {
    progress.done(what);
    why = null;
  }

  /** Why the first process since {@link #begin} that gave no samples gave none. */
  String why() {
    return why == null ? "not measured" : why;
  }

  /** How many processes failed or did not end. */
  int failed() {
    return failed;
  }

  /** What was measured under that name: {@code costs launch}, one entry for each process. */
  List<Samples> of(String name) {
    return samples.getOrDefault(name, List.of());
  }

  /**
   * Runs a worker.
   *
   * @param more options for its JVM
   */
  void measure(
      String who,
      CudaWorker.Group group,
      int scale,
      ChildProcess.Place place,
      String carriers,
      String... more)
      throws Exception {
    List<String> properties = new ArrayList<>(List.of("-Dfairlead.carriers=" + carriers));
    properties.addAll(List.of(more));
    measure(who, args(group, scale), properties, place, group.limit());
  }

  /** What this process was told of the driver's library is told to its children. */
  private static List<String> properties(List<String> own) {
    List<String> all = new ArrayList<>(own);
    String library = System.getProperty(CudaSuite.LIBRARY_PROPERTY);
    if (library != null) {
      all.add("-D" + CudaSuite.LIBRARY_PROPERTY + "=" + library);
    }
    return all;
  }

  private List<String> args(CudaWorker.Group group, int scale) {
    List<String> args = new ArrayList<>(List.of("bench", "cuda-worker", group.name()));
    args.addAll(List.of("--scale", "" + scale));
    if (image != null) {
      args.addAll(List.of("--image", image.toString()));
    }
    return args;
  }

  /**
   * Runs a worker in many processes, several at once, and takes the samples of all. Says how far it
   * is after each that several, so that who ends it knows what it had found by then.
   *
   * @param limit no further one is begun after that
   */
  Crowd measureCrowd(
      String who, CudaWorker.Group group, int scale, int processes, int atOnce, Duration limit)
      throws Exception {
    long begin = System.nanoTime();
    Crowd crowd = new Crowd(0, 0, 0);
    try (ExecutorService threads = Executors.newFixedThreadPool(atOnce)) {
      CompletionService<ChildProcess.Result> children = new ExecutorCompletionService<>(threads);
      int begun = 0;
      while (begun < Math.min(atOnce, processes)) {
        children.submit(() -> child(group, scale));
        begun++;
      }
      while (crowd.ended < begun) {
        crowd = taken(who, children.take(), crowd);
        Duration passed = Duration.ofNanos(System.nanoTime() - begin);
        if (begun < processes && passed.compareTo(limit) < 0) {
          children.submit(() -> child(group, scale));
          begun++;
        }
        if (crowd.ended % atOnce == 0 || crowd.ended == begun) {
          progress.done(crowd.text(processes, passed));
        }
      }
    }
    return crowd;
  }

  private Crowd taken(String who, Future<ChildProcess.Result> child, Crowd before)
      throws Exception {
    try {
      take(who, child.get().lines("samples "));
      return before.and(0, 0);
    } catch (ExecutionException e) {
      if (!(e.getCause() instanceof ChildProcess.ChildFailedException bad)) {
        throw e;
      }
      failed(bad.hung() ? "did not end" : "failed", String.valueOf(bad.getMessage()));
      return bad.hung() ? before.and(1, 0) : before.and(0, 1);
    }
  }

  /**
   * What became of many processes.
   *
   * @param ended those that are over, one way or another
   * @param hung those of them that did not end by themselves
   * @param failed those that gave no samples for another reason
   */
  record Crowd(int ended, int hung, int failed) {
    private Crowd and(int hung, int failed) {
      return new Crowd(ended + 1, this.hung + hung, this.failed + failed);
    }

    private String text(int of, Duration passed) {
      return String.format(
          Locale.ROOT,
          "%d of %d processes after %d s: %d did not end, %d failed",
          ended,
          of,
          passed.toSeconds(),
          hung,
          failed);
    }
  }

  /**
   * Two carriers are enough for what one of a crowd does: with one for each core of the machine,
   * each would look for work beside those of all others. Nor is it worth compiling well.
   */
  private ChildProcess.Result child(CudaWorker.Group group, int scale) throws Exception {
    return ChildProcess.onCores(
        new ChildProcess.Place(Integer.MAX_VALUE, 2),
        properties(List.of("-Dfairlead.carriers=own", "-XX:TieredStopAtLevel=1")),
        args(group, scale),
        group.limit().plus(STARTS_AND_ENDS));
  }

  /**
   * Runs a worker that prints samples, with options of its own for its JVM. What it printed before
   * it failed counts.
   */
  void measure(
      String who,
      List<String> args,
      List<String> properties,
      ChildProcess.Place place,
      Duration workerLimit)
      throws Exception {
    List<String> all = properties(properties);
    try {
      Duration limit = workerLimit.plus(STARTS_AND_ENDS);
      take(who, ChildProcess.onCores(place, all, args, limit).lines("samples "));
    } catch (ChildProcess.ChildFailedException bad) {
      take(who, bad.lines("samples "));
      failed(bad.hung() ? "did not end" : "failed", String.valueOf(bad.getMessage()));
    }
  }

  /**
   * Runs a part of the baseline in C, unless it is known to give no samples.
   *
   * @param who its samples are found by that name
   * @param part as baseline.c names it
   */
  void measureC(String who, String part, int scale, ChildProcess.Place place)
      throws IOException, InterruptedException {
    if (cIsMissing) {
      why = why == null ? NO_BASELINE : why;
    } else if (measure(who, c, scale, place, part) != null) {
      cIsMissing = true;
      failed(NO_BASELINE, "no baseline in C; rows over it have no figures");
    }
  }

  /** Runs another library; returns why it gave no samples, in a few words, or null. */
  @Nullable String measureLibrary(String name, int scale, ChildProcess.Place place)
      throws IOException, InterruptedException {
    String missing = measure(name, CudaPeer.of(name), scale, place);
    if (missing != null && !missing.equals(NOT_HERE)) {
      failed(missing, name + " failed");
    }
    return missing;
  }

  private @Nullable String measure(
      String who, CudaPeer peer, int scale, ChildProcess.Place place, String... part)
      throws IOException, InterruptedException {
    Path kernels = kernels();
    try {
      take(who, peer.samples(kernels, scale, place.cores(), part));
      return null;
    } catch (CudaPeer.MissingException none) {
      progress.done(String.valueOf(none.getMessage()));
      return none.absent() ? NOT_HERE : "failed";
    } finally {
      if (image == null) {
        Files.delete(kernels);
      }
    }
  }

  private Path kernels() throws IOException {
    if (image != null) {
      return image;
    }
    return Files.writeString(
        Files.createTempFile("fairlead-kernels", ".ptx"), CudaWorker.kernels());
  }

  private void failed(String inAWord, String text) {
    failed++;
    why = why == null ? inAWord : why;
    progress.done(text);
  }

  /** Takes lines as C and the workers print them. */
  private void take(String who, List<String> lines) {
    for (String text : lines) {
      SampleLine.parse(text)
          .ifPresent(
              line ->
                  samples
                      .computeIfAbsent(who + " " + line.name(), key -> new ArrayList<>())
                      .add(line.samples()));
    }
  }
}
