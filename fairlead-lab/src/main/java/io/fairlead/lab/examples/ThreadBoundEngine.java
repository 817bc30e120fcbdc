package io.fairlead.lab.examples;

import io.fairlead.task.Engine;
import io.fairlead.task.EngineFactory;
import io.fairlead.task.EngineLimits;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import io.fairlead.task.ThreadRule;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;

/** A thread-bound library behind an engine, used by tasks and by a plain executor. */
public final class ThreadBoundEngine {
  private ThreadBoundEngine() {}

  // snippet:factory
  /** Makes and ends one instance; both run on the thread that the instance then lives on. */
  static final class MeterFactory implements EngineFactory<Meter> {
    private final Path library;

    MeterFactory(Path library) {
      this.library = library;
    }

    @Override
    public Meter create() {
      Meter meter = new Meter(library);
      meter.open();
      return meter;
    }

    @Override
    public void destroy(Meter meter) {
      meter.close();
    }
  }

  // end:factory

  /** Declares the engine: the rule says where calls run, the limits how many there are. */
  public static Engine<Meter> declare(TaskRuntime tasks, Path library, int instances) {
    // snippet:declare
    Engine<Meter> meters =
        tasks.engine(
            "meter",
            ThreadRule.OWNER_ONLY, // each instance has its own thread, and is used on no other
            new MeterFactory(library),
            EngineLimits.of(instances));
    // end:declare
    return meters;
  }

  /** The mean of each batch, every batch a task. */
  public static List<Double> meansByTasks(
      TaskRuntime tasks, Engine<Meter> meters, List<double[]> batches) {
    // snippet:tasks
    try (TaskScope<Double> scope = tasks.scope()) {
      for (double[] batch : batches) {
        scope.fork(() -> meters.call(0, meter -> mean(meter, batch)));
      }
      return scope.join(); // in the order of the forks
    }
    // end:tasks
  }

  /** The same from threads that know nothing of tasks. */
  public static List<Double> meansByExecutor(
      ExecutorService executor, Engine<Meter> meters, List<double[]> batches)
      throws InterruptedException, ExecutionException {
    // snippet:executor
    List<Future<Double>> futures = new ArrayList<>();
    for (double[] batch : batches) {
      futures.add(executor.submit(() -> meters.call(0, meter -> mean(meter, batch))));
    }
    // end:executor
    List<Double> means = new ArrayList<>();
    for (Future<Double> future : futures) {
      means.add(future.get());
    }
    return means;
  }

  // snippet:call
  /** One call has the instance to itself, so it may be as long as the library's state lasts. */
  private static double mean(Meter meter, double[] batch) {
    meter.close();
    meter.open();
    for (double value : batch) {
      meter.add(value);
    }
    return meter.mean();
  }
  // end:call
}
