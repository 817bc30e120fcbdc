package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
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

  private final CudaPeer c;

  /** Kernels in place of this program's own, for a driver that takes no PTX. */
  private final @Nullable Path image;

  private final Progress progress;

  /** By who measured and what: {@code c wait.20}; one entry for each process. */
  private final Map<String, List<Samples>> samples = new HashMap<>();

  private int failed;
  private @Nullable String why;

  CudaRuns(CudaPeer c, @Nullable Path image, Progress progress) {
    this.c = c;
    this.image = image;
    this.progress = progress;
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
   * @param cores 0: all there are
   * @param more options for its JVM
   */
  void measure(
      String who, CudaWorker.Group group, int scale, int cores, String carriers, String... more)
      throws Exception {
    List<String> properties = new ArrayList<>(List.of("-Dfairlead.carriers=" + carriers));
    properties.addAll(List.of(more));
    measure(who, args(group, scale), properties, cores, group.limit());
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
   * Runs a worker in many processes, several at once, and takes the samples of all.
   *
   * @return how many of them did not end, and how many failed in another way
   */
  Lost measureCrowd(String who, CudaWorker.Group group, int scale, int processes, int atOnce)
      throws Exception {
    List<Future<ChildProcess.Result>> children = new ArrayList<>();
    try (ExecutorService threads = Executors.newFixedThreadPool(atOnce)) {
      for (int i = 0; i < processes; i++) {
        children.add(threads.submit(() -> child(group, scale)));
      }
    }
    int hung = 0;
    int broken = 0;
    for (Future<ChildProcess.Result> child : children) {
      try {
        take(who, child.get().lines("samples "));
      } catch (ExecutionException e) {
        if (!(e.getCause() instanceof ChildProcess.ChildFailedException bad)) {
          throw e;
        }
        failed(bad.hung() ? "did not end" : "failed", String.valueOf(bad.getMessage()));
        hung += bad.hung() ? 1 : 0;
        broken += bad.hung() ? 0 : 1;
      }
    }
    return new Lost(hung, broken);
  }

  /** Processes of a crowd that gave no samples. */
  record Lost(int hung, int failed) {}

  private ChildProcess.Result child(CudaWorker.Group group, int scale) throws Exception {
    return ChildProcess.onCores(
        ChildProcess.cores(Integer.MAX_VALUE),
        properties(List.of("-Dfairlead.carriers=own")),
        args(group, scale),
        group.limit().plus(STARTS_AND_ENDS));
  }

  /** Runs a worker that prints samples, with options of its own for its JVM. */
  void measure(
      String who, List<String> args, List<String> properties, int cores, Duration workerLimit)
      throws Exception {
    List<String> all = properties(properties);
    int wanted = cores == 0 ? ChildProcess.cores(Integer.MAX_VALUE) : cores;
    try {
      Duration limit = workerLimit.plus(STARTS_AND_ENDS);
      take(who, ChildProcess.onCores(wanted, all, args, limit).lines("samples "));
    } catch (ChildProcess.ChildFailedException bad) {
      failed(bad.hung() ? "did not end" : "failed", String.valueOf(bad.getMessage()));
    }
  }

  /** Runs the baseline in C; returns whether it gave samples. */
  boolean measureC(int scale) throws IOException, InterruptedException {
    String missing = measure("c", c, scale);
    if (missing != null) {
      failed("no baseline", "no baseline in C; rows over it have no figures");
    }
    return missing == null;
  }

  /** Runs another library; returns why it gave no samples, in a few words, or null. */
  @Nullable String measureLibrary(String name, int scale) throws IOException, InterruptedException {
    String missing = measure(name, CudaPeer.of(name), scale);
    if (missing != null && !missing.equals(NOT_HERE)) {
      failed(missing, name + " failed");
    }
    return missing;
  }

  private @Nullable String measure(String who, CudaPeer peer, int scale)
      throws IOException, InterruptedException {
    Path kernels = kernels();
    try {
      take(who, peer.samples(kernels, scale));
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
    for (String line : lines) {
      List<String> words = List.of(line.strip().split(" +", -1));
      if (words.size() > 2) {
        double[] values =
            words.subList(2, words.size()).stream().mapToDouble(Double::parseDouble).toArray();
        samples
            .computeIfAbsent(who + " " + words.get(1), key -> new ArrayList<>())
            .add(Samples.of(values));
      }
    }
  }
}
