package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;

/**
 * Tasks beside what the JDK offers: forks, wakes, owners, and being many (rows 001.3 and 002).
 *
 * <p>Each group of rows has a process of its own, bound to as many cores as its rows name.
 */
final class TaskSuite implements Suite {
  private static final double MICROS = 1e-3;

  private final List<Row> rows = new ArrayList<>();
  private final Map<String, Samples> samples = new HashMap<>();

  @Override
  public String name() {
    return "tasks";
  }

  @Override
  public String about() {
    return "tasks beside the JDK's: forks, wakes, owners, a million at once";
  }

  @Override
  public List<String> ids(Options options) {
    return List.of(
        "tasks.fork.added",
        "tasks.fork.garbage",
        "tasks.pfib31.ratio_fjp.1thread",
        "tasks.pfib31.ratio_fjp",
        "tasks.pfib31.speedup",
        "tasks.fine",
        "tasks.scope.fork.nanos",
        "tasks.scope.fork.bytes",
        "tasks.spawn_block.one",
        "tasks.spawn_block.parked1000",
        "tasks.spawn_block.one.same_carriers",
        "tasks.spawn_block.parked1000.same_carriers",
        "tasks.notify.p50",
        "tasks.notify.p99_over_p50",
        "tasks.notify.busy_p99",
        "tasks.pingpong.own_over_jdk",
        "tasks.bound.affine",
        "tasks.bound.hot",
        "tasks.bound.slept",
        "tasks.busy.forking_p99",
        "tasks.busy.loops_p99",
        "tasks.blocked_natives.p99",
        "tasks.million.bytes",
        "tasks.million.threads");
  }

  @Override
  public List<Row> run(Options options, Progress progress) throws Exception {
    int cores = ChildProcess.cores(2);
    progress.done(String.format(Locale.ROOT, "forks, on 1 and on %d cores", cores));
    measure(options, TaskWorker.Group.FORKS, 1, List.of());
    Samples alone = of("pfib.frames");
    addForks(alone);
    measure(options, TaskWorker.Group.FORKS, cores, List.of());
    addParallelForks(alone);
    progress.done(String.format(Locale.ROOT, "wakes and owners, on %d cores", cores));
    measure(options, TaskWorker.Group.WAKES, cores, List.of());
    addWakes(cores);
    progress.done("ping-pong: own carriers and the JDK's in turn");
    addPingPong(options, cores);
    progress.done("a million parked tasks");
    measure(options, TaskWorker.Group.MILLION, cores, List.of());
    addMillion(cores);
    return rows;
  }

  private void measure(Options options, TaskWorker.Group group, int cores, List<String> properties)
      throws Exception {
    List<String> args = new ArrayList<>(List.of("bench", "tasks-worker", group.name()));
    if (options.quick()) {
      args.add("--quick");
    }
    ChildProcess.Result child = ChildProcess.onCores(cores, properties, args);
    for (String line : child.lines("samples ")) {
      List<String> words = List.of(line.split(" ", -1));
      double[] values =
          words.subList(2, words.size()).stream().mapToDouble(Double::parseDouble).toArray();
      samples.put(words.get(1), Samples.of(values));
    }
  }

  private Samples of(String name) {
    return Objects.requireNonNull(samples.get(name), () -> "no samples of " + name);
  }

  private void addForks(Samples frames) {
    Samples added = frames.minus(of("pfib.serial")).times(1 / ForkProbes.forks());
    rows.add(Row.median("tasks.fork.added", "ns", "lower", added).bounds(20.0, 5.0));
    rows.add(Row.median("tasks.fork.garbage", "B", "lower", of("pfib.bytes")).bounds(32.0, 0.0));
    rows.add(
        Row.ratio("tasks.pfib31.ratio_fjp.1thread", frames, of("pfib.pool")).bounds(0.5, 0.15));
  }

  private void addParallelForks(Samples alone) {
    Samples frames = of("pfib.frames");
    rows.add(Row.ratio("tasks.pfib31.ratio_fjp", frames, of("pfib.pool")).bounds(0.5, 0.15));
    Samples speedup = alone.over(frames);
    rows.add(Row.median("tasks.pfib31.speedup", "x", "higher", speedup).bounds(1.5, 1.9));
    rows.add(Row.ratio("tasks.fine", of("fine.ours"), of("fine.theirs")).bounds(1.3, 1.0));
    rows.add(
        Row.median("tasks.scope.fork.nanos", "ns", "lower", of("scope.nanos")).bounds(60.0, 25.0));
    rows.add(
        Row.median("tasks.scope.fork.bytes", "B", "lower", of("scope.bytes")).bounds(160.0, 56.0));
  }

  private void addWakes(int cores) {
    rows.add(
        Row.ratio("tasks.spawn_block.one", of("spawn_block.ours"), of("spawn_block.theirs"))
            .bounds(0.6, 0.3));
    rows.add(
        Row.ratio("tasks.spawn_block.parked1000", of("parked1000.ours"), of("parked1000.theirs"))
            .bounds(1.5, 1.0));
    rows.add(
        Row.ratio(
            "tasks.spawn_block.one.same_carriers",
            of("spawn_block.ours"),
            of("spawn_block.inherited")));
    rows.add(
        Row.ratio(
            "tasks.spawn_block.parked1000.same_carriers",
            of("parked1000.ours"),
            of("parked1000.inherited")));
    addNotify(cores);
    rows.add(micros("tasks.bound.affine", of("affine")).bounds(2.0, 0.7));
    rows.add(micros("tasks.bound.hot", of("shifted.hot")).bounds(8.0, 2.5));
    rows.add(micros("tasks.bound.slept", of("shifted.slept")).bounds(40.0, 15.0));
    rows.add(late("tasks.busy.forking_p99", of("busy.forking")).bounds(100.0, 50.0));
    rows.add(late("tasks.busy.loops_p99", of("busy.loops")).bounds(1000.0, 300.0));
    rows.add(late("tasks.blocked_natives.p99", of("blocked64")).bounds(1000.0, 100.0));
  }

  /** The worst of all numbers of pairs: one, as many as cores, four times as many. */
  private void addNotify(int cores) {
    List<Samples> all = List.of(of("notify.1"), of("notify." + cores), of("notify." + 4 * cores));
    double p50 = all.stream().mapToDouble(Samples::median).max().orElseThrow();
    double tail = all.stream().mapToDouble(each -> each.p99() / each.median()).max().orElseThrow();
    rows.add(Row.exact("tasks.notify.p50", "us", "lower", p50 * MICROS).bounds(3.0, 1.0));
    rows.add(Row.exact("tasks.notify.p99_over_p50", "x", "lower", tail).bounds(5.0, 3.0));
    rows.add(late("tasks.notify.busy_p99", of("notify.busy")).bounds(60.0, 10.0));
  }

  private void addPingPong(Options options, int cores) throws Exception {
    List<Double> own = new ArrayList<>();
    List<Double> jdk = new ArrayList<>();
    for (int round = 0; round < (options.quick() ? 1 : 5); round++) {
      measure(options, TaskWorker.Group.PING_PONG, cores, List.of("-Dfairlead.carriers=own"));
      own.add(of("pingpong").median());
      measure(options, TaskWorker.Group.PING_PONG, cores, List.of("-Dfairlead.carriers=jdk"));
      jdk.add(of("pingpong").median());
    }
    rows.add(
        Row.ratio("tasks.pingpong.own_over_jdk", Samples.of(own), Samples.of(jdk))
            .bounds(0.8, 0.5));
  }

  private void addMillion(int cores) {
    double bytes = of("million.bytes").median();
    rows.add(Row.exact("tasks.million.bytes", "B", "lower", bytes).bounds(2048.0, 1024.0));
    double threads = of("million.threads").median();
    rows.add(
        Row.exact("tasks.million.threads", "threads", "lower", threads)
            .bounds(cores + 4.0, cores + 2.0));
  }

  private static Row micros(String id, Samples nanos) {
    return Row.median(id, "us", "lower", nanos.times(MICROS));
  }

  /** A row whose value is the 99th percentile. */
  private static Row late(String id, Samples nanos) {
    Samples micros = nanos.times(MICROS);
    return new Row(
        id,
        micros.p99(),
        "us",
        "lower",
        null,
        null,
        micros.count(),
        micros.median(),
        micros.p99(),
        null,
        null);
  }
}
