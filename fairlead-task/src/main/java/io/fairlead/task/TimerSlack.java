package io.fairlead.task;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * How late the system may end the sleeps of a thread, to end several at once. Linux takes 50 µs
 * unless a thread says otherwise: more than twice the shortest nap of a poller ({@link Nap}), so
 * that a wait that ends within a nap ended some 60 µs late. A thread asks for its own in {@code
 * /proc}; no other program's sleeps change.
 *
 * <p>Source: {@code man 2 prctl}, PR_SET_TIMERSLACK; {@code man 5 proc_pid_timerslack_ns}.
 */
final class TimerSlack {
  /** The least that changes anything: a timer of the kernel's is not more exact. */
  private static final String NANOS = "1000";

  private static final Path SELF = Path.of("/proc/thread-self");

  private TimerSlack() {}

  /** Of the calling platform thread, and of those that it starts. Where it cannot be, nothing. */
  static void tighten() {
    try {
      Files.writeString(ofThisThread(), NANOS);
    } catch (IOException | SecurityException notHere) {
      // no Linux, or one that does not let us: naps are longer then
    }
  }

  /** The file of the thread that calls: that of its process is its main thread's. */
  static Path ofThisThread() throws IOException {
    Path task = Files.readSymbolicLink(SELF); // PROCESS/task/THREAD
    return Path.of("/proc").resolve(task.getFileName()).resolve("timerslack_ns");
  }
}
