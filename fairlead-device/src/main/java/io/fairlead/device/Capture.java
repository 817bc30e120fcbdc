package io.fairlead.device;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.task.Task;

/**
 * One capture of a stream: who captures, and what the graph will need. Used under the stream's
 * turn, and by the task that captures.
 */
final class Capture {
  final String name;
  final Holdings holdings = new Holdings();

  /** How many were captured. */
  int operations;

  private final Task by = Task.current();

  Capture(String name) {
    this.name = name;
  }

  /**
   * Refuses what cannot be part of a graph, and others than the task that captures.
   *
   * @throws IllegalStateException that says what to do
   */
  void require(StreamCore stream, DriverCall call, String operation) {
    if (Task.current() != by) {
      throw refusal(
          stream, operation, "use another stream, or come back when the capture has ended");
    }
    switch (call) {
      case LAUNCH, COPY, FILL -> {}
      case ALLOC_ASYNC, FREE_ASYNC ->
          throw refusal(stream, operation, "allocate before the capture, and free after the graph");
      case STREAM_WAIT_EVENT ->
          throw refusal(stream, operation, "let the stream come after that before the capture");
      case GRAPH_LAUNCH ->
          throw refusal(stream, operation, "launch one graph after the other instead");
      default -> throw refusal(stream, operation, "do that before the capture or after it");
    }
  }

  IllegalStateException refusal(StreamCore stream, String operation, String advice) {
    return new IllegalStateException(
        operation
            + ": stream "
            + stream.id
            + " is being captured by task '"
            + by.name()
            + "' for graph '"
            + name
            + "'; "
            + advice);
  }
}
