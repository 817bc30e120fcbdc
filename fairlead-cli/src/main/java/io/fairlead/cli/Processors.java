package io.fairlead.cli;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** Which processors this process may use, as Linux tells. */
public final class Processors {
  private static final String MASK = "Cpus_allowed_list:";

  private Processors() {}

  /** The processors that this process may use, as the system lists them, or null elsewhere. */
  public static @Nullable String affinity() {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
        if (line.startsWith(MASK)) {
          return line.substring(MASK.length()).strip();
        }
      }
      return null;
    } catch (IOException elsewhere) {
      return null; // not Linux
    }
  }

  /**
   * The processors that this process may use, so that the first {@code n} are on {@code n} cores as
   * far as there are: two hardware threads of one core share it. Those from 0 on where the system
   * does not tell.
   */
  public static List<Integer> coresFirst() {
    String mask = affinity();
    return mask == null
        ? IntStream.range(0, Runtime.getRuntime().availableProcessors()).boxed().toList()
        : coresFirst(parse(mask), Processors::siblings);
  }

  /** First the first of each core, then the second of each, and so on. */
  static List<Integer> coresFirst(List<Integer> allowed, IntFunction<List<Integer>> siblings) {
    Map<Integer, Integer> before = new HashMap<>(); // how many of the same core
    for (int processor : allowed) {
      List<Integer> core = siblings.apply(processor);
      long lower = core.stream().filter(p -> p < processor && allowed.contains(p)).count();
      before.put(processor, (int) lower);
    }
    return allowed.stream()
        .sorted(Comparator.comparingInt((Integer p) -> before.get(p)).thenComparingInt(p -> p))
        .toList();
  }

  /** Such as {@code 0-3,8}. */
  static List<Integer> parse(String list) {
    List<Integer> processors = new ArrayList<>();
    for (String range : list.split(",", -1)) {
      int[] ends =
          Stream.of(range.split("-", -1)).map(String::strip).mapToInt(Integer::parseInt).toArray();
      for (int p = ends[0]; p <= ends[ends.length - 1]; p++) {
        processors.add(p);
      }
    }
    return processors;
  }

  private static List<Integer> siblings(int processor) {
    Path file =
        Path.of("/sys/devices/system/cpu/cpu" + processor + "/topology/thread_siblings_list");
    try {
      return parse(Files.readString(file).strip());
    } catch (IOException untold) {
      return List.of(processor);
    }
  }
}
