package io.fairlead.cli;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Ends a measuring process that has not ended in time, after it has said what its threads do: no
 * interrupt reaches a call that hangs in a driver, and the tools that show stacks are not in a
 * bundle.
 *
 * <p>Closing it ends the watch. Any thread.
 */
public final class HangWatch implements AutoCloseable {
  /** What a process that was ended exits with. */
  public static final int EXIT_CODE = 70;

  /** Different stacks that are shown: the most frequent ones. */
  private static final int STACKS_MAX = 60;

  private final CountDownLatch ended = new CountDownLatch(1);

  private HangWatch() {}

  /** Watches until it is closed. */
  public static HangWatch start(String what, Duration limit, PrintWriter out) {
    return start(what, limit, () -> "", out);
  }

  /** Watches until it is closed, and says more where it hangs. */
  public static HangWatch start(
      String what, Duration limit, Supplier<String> more, PrintWriter out) {
    HangWatch watch = new HangWatch();
    Thread.ofPlatform()
        .daemon()
        .name("hang-watch")
        .start(() -> watch.haltIfItHangs(what, limit, more, out));
    return watch;
  }

  @Override
  public void close() {
    ended.countDown();
  }

  private void haltIfItHangs(String what, Duration limit, Supplier<String> more, PrintWriter out) {
    try {
      if (ended.await(limit.toMillis(), TimeUnit.MILLISECONDS)) {
        return;
      }
    } catch (InterruptedException e) {
      return;
    }
    out.println(what + " has not ended after " + limit.toSeconds() + " s:");
    out.println(stacks());
    out.flush(); // what comes now may hang as well
    out.println(more.get());
    out.flush();
    Runtime.getRuntime().halt(EXIT_CODE);
  }

  /** What all threads do, platform and virtual: each different stack once, with their number. */
  static String stacks() {
    try {
      Path folder = Files.createTempDirectory("fairlead-stacks");
      Path file = folder.resolve("stacks");
      try {
        ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class)
            .dumpThreads(
                file.toAbsolutePath().toString(),
                HotSpotDiagnosticMXBean.ThreadDumpFormat.TEXT_PLAIN);
        return grouped(Files.readAllLines(file));
      } finally {
        Files.deleteIfExists(file);
        Files.delete(folder);
      }
    } catch (IOException e) {
      return "no stacks: " + e;
    }
  }

  /** A thread is a line that begins with a number sign, its frames the indented lines after it. */
  static String grouped(List<String> dump) {
    Map<String, List<String>> threadsByStack = new LinkedHashMap<>();
    String thread = "";
    StringBuilder frames = new StringBuilder();
    for (String line : dump) {
      if (line.startsWith("#")) {
        add(thread, frames, threadsByStack);
        thread = line;
        frames.setLength(0);
      } else if (line.startsWith("  ") && !isLock(line)) {
        frames.append("  ").append(line.strip()).append('\n');
      }
    }
    add(thread, frames, threadsByStack);
    StringBuilder out = new StringBuilder();
    threadsByStack.entrySet().stream()
        .sorted(Comparator.comparingInt(entry -> -entry.getValue().size()))
        .limit(STACKS_MAX)
        .forEach(
            entry -> {
              List<String> threads = entry.getValue();
              out.append(threads.size()).append(" x ").append(threads.getFirst()).append('\n');
              out.append(entry.getKey());
            });
    int left = threadsByStack.size() - STACKS_MAX;
    return left > 0 ? out + "and " + left + " more stacks" : out.toString();
  }

  /** Lines about monitors name objects, which differ where the stacks do not. */
  private static boolean isLock(String line) {
    return line.strip().startsWith("-");
  }

  private static void add(
      String thread, StringBuilder frames, Map<String, List<String>> threadsByStack) {
    if (!thread.isEmpty()) {
      threadsByStack.computeIfAbsent(frames.toString(), key -> new ArrayList<>()).add(thread);
    }
  }
}
