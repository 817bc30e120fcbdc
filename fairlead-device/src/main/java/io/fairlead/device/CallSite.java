package io.fairlead.device;

import io.fairlead.task.Task;
import java.util.Set;
import java.util.stream.Collectors;

/** Where a resource was made, for the report of a leak. */
final class CallSite {
  /** Callers that are named: enough to tell one user of a helper method from another. */
  private static final int FRAMES = 3;

  /** What users call, which is not where they made the resource. */
  private static final Set<String> OURS =
      Set.of(
          CallSite.class.getName(),
          DeviceContext.class.getName(),
          DeviceStream.class.getName(),
          DeviceGraph.class.getName(),
          GraphBuilder.class.getName(),
          Captures.class.getName(),
          TaskStreams.class.getName(),
          HostBlocks.class.getName());

  private static final StackWalker WALKER = StackWalker.getInstance();

  private CallSite() {}

  /** The callers outside of Fairlead, and the task. A few microseconds. */
  static String here() {
    String frames =
        WALKER.walk(
            stack ->
                stack
                    .filter(frame -> !isOurs(frame.getClassName()))
                    .limit(FRAMES)
                    .map(frame -> frame.toStackTraceElement().toString())
                    .collect(Collectors.joining(" < ")));
    Task task = Task.current();
    return (frames.isEmpty() ? "an unknown place" : frames)
        + ", task "
        + task.name()
        + " #"
        + task.id();
  }

  private static boolean isOurs(String name) {
    return OURS.contains(name) || name.startsWith("io.fairlead.memory.");
  }
}
