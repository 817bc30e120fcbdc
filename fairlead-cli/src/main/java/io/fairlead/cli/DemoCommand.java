package io.fairlead.cli;

import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.Task;
import io.fairlead.task.TaskLocal;
import io.fairlead.task.TaskScope;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;

/**
 * {@code fairlead demo migration}: shows that tasks move between threads, and that nothing tears.
 */
@Command(
    name = "demo",
    description = {
      "migration: starts tasks that each yield once, and counts how many went on on another thread",
      "than they began on, and how many lost what belongs to them (none)."
    },
    mixinStandardHelpOptions = true,
    sortOptions = false,
    versionProvider = Version.class)
public final class DemoCommand implements Callable<Integer> {
  private static final TaskLocal<Integer> MINE = TaskLocal.of(-1);

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(paramLabel = "DEMO", description = "migration")
  private String demo = "";

  @Option(
      names = "--tasks",
      paramLabel = "N",
      defaultValue = "10000",
      description = "How many tasks (default ${DEFAULT-VALUE}).")
  private int tasks;

  /** Made by the command line parser. */
  public DemoCommand() {}

  @Override
  public Integer call() {
    CommandLine line = Objects.requireNonNull(spec).commandLine();
    if (!demo.equals("migration")) {
      throw new ParameterException(line, "There is no demo '" + demo + "'. Try: migration");
    }
    if (tasks < 1 || tasks > 10_000_000) {
      throw new ParameterException(line, "--tasks takes 1 to 10000000, not " + tasks);
    }
    Tally tally = migrate();
    line.getOut().print(tally.text());
    line.getOut().flush();
    return tally.wrong == 0 ? ExitCode.OK : ExitCode.FAILURE;
  }

  private Tally migrate() {
    try (Fairlead fairlead = Fairlead.open(FairleadConfig.fromSystem().withDevice("host"));
        TaskScope<Seen> scope = fairlead.scope()) {
      for (int i = 0; i < tasks; i++) {
        int number = i;
        scope.fork(() -> yieldOnce(number));
      }
      return Tally.of(scope.join());
    }
  }

  /** Where a task was before and after it yielded, and whether all that is its own stayed so. */
  private record Seen(String before, String after, boolean right) {}

  @SuppressWarnings("ThreadPriorityCheck") // to yield is what is shown
  private static Seen yieldOnce(int number) throws Exception {
    Task self = Task.current();
    return MINE.where(
        number,
        () -> {
          String before = carrier();
          Thread.yield();
          boolean right = Task.current().equals(self) && MINE.get() == number;
          return new Seen(before, carrier(), right);
        });
  }

  /** The platform thread's name: what a virtual thread's description ends with. */
  private static String carrier() {
    String description = Thread.currentThread().toString();
    return description.substring(description.lastIndexOf('@') + 1);
  }

  private record Tally(int tasks, long moved, long threads, long wrong) {
    static Tally of(List<Seen> all) {
      return new Tally(
          all.size(),
          all.stream().filter(seen -> !seen.before.equals(seen.after)).count(),
          all.stream().flatMap(seen -> Stream.of(seen.before, seen.after)).distinct().count(),
          all.stream().filter(seen -> !seen.right).count());
    }

    String text() {
      return String.format(
          Locale.ROOT,
          "%,d tasks yielded once, on %d threads%n"
              + "%,d went on on another thread than before (%.1f %%)%n"
              + "%,d lost their identity or their task local%n",
          tasks,
          threads,
          moved,
          100.0 * moved / tasks,
          wrong);
    }
  }
}
