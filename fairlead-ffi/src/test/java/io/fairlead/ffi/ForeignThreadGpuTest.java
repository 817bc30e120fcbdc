package io.fairlead.ffi;

import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Driver;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** On a GPU: a thread that has made a context of its own keeps it. */
@Timeout(60)
class ForeignThreadGpuTest {
  @Test
  void itsContextStaysCurrent() {
    try (Driver driver = CudaGpu.open();
        TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        RawContexts raw = new RawContexts("libcuda.so.1", 0)) {
      ModuleSource source = new ModuleSource("rules", List.of(CudaKernels.PTX));
      ForeignWork work = new ForeignWork(tasks, driver, raw, source);
      work.run(none -> {});
      tasks.enter(
          "foreign",
          0,
          () -> {
            work.run(none -> {});
            return null;
          });
      work.kept("all");
      raw.makeCurrent(0);
    }
  }
}
