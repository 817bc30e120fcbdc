package io.fairlead.device;

import io.fairlead.task.Task;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;

/**
 * Captures what a task enqueues. A task's own stream may be shared, and then another task's work
 * would be captured or refused; so the task is given a stream that nobody else knows meanwhile.
 * They are made when needed, kept, and destroyed with the context.
 *
 * <p>Lock-free; any thread.
 */
final class Captures {
  private final DeviceContext context;
  private final Queue<DeviceStream> idle = new ConcurrentLinkedQueue<>();

  Captures(DeviceContext context) {
    this.context = context;
  }

  DeviceGraph capture(TaskStreams streams, String name, Consumer<DeviceStream> body) {
    Objects.requireNonNull(body, "body");
    if (Task.current().isRoot()) {
      throw new IllegalStateException(
          "capture: threads that never entered share what they enqueue; enter a task, or use"
              + " openStream(0).capture(name, body)");
    }
    DeviceStream known = idle.poll();
    DeviceStream stream = known != null ? known : context.createPooled(0);
    try {
      return streams.instead(stream, () -> stream.captured(name, () -> body.accept(stream)));
    } finally {
      idle.add(stream);
    }
  }
}
