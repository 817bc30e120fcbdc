package io.fairlead.lab.examples;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.lab.Repository;
import io.fairlead.task.Engine;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class ThreadBoundEngineTest {
  private static final String SOURCE = "fairlead-lab/src/main/c/meter.c";
  private static final int BATCHES = 500;

  private static Path library;
  private static boolean built;

  @BeforeAll
  static void build() throws IOException, InterruptedException {
    Path target = Repository.root().resolve("fairlead-lab/target/meter");
    Files.createDirectories(target);
    library = target.resolve(System.mapLibraryName("meter"));
    built = compile(Repository.root().resolve(SOURCE), library);
    if (!built) {
      System.out.println(
          "!! NO C COMPILER (gcc): the example that wraps a thread-bound library was NOT run");
    }
  }

  /** Asked by each test, not before all of them: what skips a whole class leaves no reason. */
  private static Path library() {
    assumeTrue(built, "no gcc");
    return library;
  }

  private static boolean compile(Path source, Path target)
      throws IOException, InterruptedException {
    String told = System.getenv("FAIRLEAD_CC");
    String compiler = told == null || told.isBlank() ? "gcc" : told;
    Process process;
    try {
      process =
          new ProcessBuilder(
                  compiler,
                  "-Wall",
                  "-Werror",
                  "-O2",
                  "-shared",
                  "-fPIC",
                  "-o",
                  target.toString(),
                  source.toString())
              .inheritIO()
              .start();
    } catch (IOException e) {
      return false; // there is none
    }
    assertThat(process.waitFor()).as("%s compiles %s", compiler, source).isZero();
    return true;
  }

  private static List<double[]> batches() {
    List<double[]> batches = new ArrayList<>();
    for (int i = 0; i < BATCHES; i++) {
      batches.add(new double[] {i, i + 1, i + 5});
    }
    return batches;
  }

  private static List<Double> expected() {
    List<Double> means = new ArrayList<>();
    for (int i = 0; i < BATCHES; i++) {
      means.add((3.0 * i + 6) / 3);
    }
    return means;
  }

  /** Without the engine: the library refuses, on whatever thread the second call lands. */
  @Test
  void theLibraryIsBoundToItsThread() throws InterruptedException {
    Meter meter = new Meter(library());
    meter.open();
    List<Throwable> thrown = Collections.synchronizedList(new ArrayList<>());
    Thread other =
        Thread.ofPlatform()
            .start(
                () -> {
                  try {
                    meter.add(1);
                  } catch (Meter.MeterException e) {
                    thrown.add(e);
                  }
                });
    other.join();
    meter.close();
    assertThat(thrown)
        .singleElement()
        .isInstanceOfSatisfying(Meter.MeterException.class, e -> assertThat(e.code()).isEqualTo(1));
  }

  @Test
  void manyTasksUseIt() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      Engine<Meter> meters = ThreadBoundEngine.declare(tasks, library(), 2);
      assertThat(ThreadBoundEngine.meansByTasks(tasks, meters, batches())).isEqualTo(expected());
      assertThat(meters.stats().calls()).isEqualTo(BATCHES);
      assertThat(meters.stats().failures()).isZero();
      assertThat(meters.stats().instances()).isBetween(1, 2);
    }
  }

  @Test
  void aPlainExecutorUsesIt() throws Exception {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        ExecutorService executor = Executors.newFixedThreadPool(8)) {
      Engine<Meter> meters = ThreadBoundEngine.declare(tasks, library(), 2);
      assertThat(ThreadBoundEngine.meansByExecutor(executor, meters, batches()))
          .isEqualTo(expected());
    }
  }

  @Test
  void tasksAndAnExecutorUseItAtTheSameTimeOnFewThreads() throws Exception {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        ExecutorService executor = Executors.newFixedThreadPool(4)) {
      Engine<Meter> meters = ThreadBoundEngine.declare(tasks, library(), 2);
      Set<Thread> threads = ConcurrentHashMap.newKeySet();
      List<Future<?>> plain = new ArrayList<>();
      for (int i = 0; i < 200; i++) {
        plain.add(
            executor.submit(() -> meters.call(0, meter -> threads.add(Thread.currentThread()))));
      }
      assertThat(ThreadBoundEngine.meansByTasks(tasks, meters, batches())).isEqualTo(expected());
      for (Future<?> future : plain) {
        future.get();
      }
      assertThat(threads).hasSizeBetween(1, 2).noneMatch(Thread::isVirtual);
    }
  }

  @Test
  void theLibrarysOwnErrorsReachTheCaller() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      Engine<Meter> meters = ThreadBoundEngine.declare(tasks, library(), 1);
      assertThatThrownBy(() -> meters.call(0, Meter::mean))
          .isInstanceOfSatisfying(
              Meter.MeterException.class, e -> assertThat(e.code()).isEqualTo(3));
      String answer = meters.call(0, meter -> "still there");
      assertThat(answer).isEqualTo("still there");
    }
  }

  /** The Java in the page is compared by the snippets test; this is the C. */
  @Test
  void theGuideShowsTheLibraryThatIsBuilt() {
    assertThat(Repository.read("docs/guide/your-own-engine.md"))
        .contains("```c\n" + Repository.read(SOURCE) + "```");
  }
}
