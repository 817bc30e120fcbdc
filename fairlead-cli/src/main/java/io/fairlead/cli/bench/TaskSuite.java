package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;

/**
 * Tasks beside what the JDK offers: forks, wakes, owners, and being many (rows 001.3 and 002).
 *
 * <p>Each group of rows has a process of its own, bound to as many cores as its rows name: 1 or 2,
 * so that the rows mean the same everywhere. Where there are more cores, forks and wakes are
 * measured once more on each number of {@link #THREADS}, with a row for each.
 */
final class TaskSuite implements Suite {
  private static final double MICROS = 1e-3;
  private static final double MILLIS = 1e-6;

  /** The numbers of threads, one core each, that are measured as far as there are cores. */
  private static final List<Integer> THREADS = List.of(1, 2, 4, 8, 16);

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
    List<String> ids = new ArrayList<>(idsOnTwoCores());
    ids.addAll(idsOnMore(ChildProcess.cores(Integer.MAX_VALUE)));
    return ids;
  }

  /** Of a row that is measured on several numbers of threads. */
  private static String on(String id, int threads) {
    return id + "." + threads + (threads == 1 ? "thread" : "threads");
  }

  /** The numbers of threads that have rows of their own: none where two cores are all there are. */
  private static List<Integer> threads(int cores) {
    return cores <= 2 ? List.of() : THREADS.stream().filter(each -> each <= cores).toList();
  }

  static List<String> idsOnMore(int cores) {
    List<String> ids = new ArrayList<>();
    for (int threads : threads(cores)) {
      ids.add(on("tasks.pfib31.millis", threads));
      if (threads > 2) {
        ids.add(on("tasks.pfib31.ratio_fjp", threads));
        ids.add(on("tasks.pfib31.speedup", threads));
      }
    }
    for (int threads : threads(cores)) {
      if (threads != 2) {
        ids.add(on("tasks.notify.p50", threads));
        ids.add(on("tasks.notify.p99_over_p50", threads));
        ids.add(on("tasks.notify.busy_p99", threads));
      }
    }
    return ids;
  }

  private static final List<String> FORKS =
      List.of(
          "tasks.fork.added",
          "tasks.fork.garbage",
          "tasks.pfib31.ratio_fjp.1thread",
          "tasks.pfib31.ratio_fjp",
          "tasks.pfib31.speedup",
          "tasks.fine",
          "tasks.scope.fork.nanos",
          "tasks.scope.fork.bytes");

  private static final List<String> SUSPENDING =
      List.of(
          "tasks.spawn_block.one",
          "tasks.spawn_block.one.same_carriers",
          "tasks.spawn_block.parked1000",
          "tasks.spawn_block.parked1000.same_carriers");

  private static final List<String> NOTIFY =
      List.of("tasks.notify.p50", "tasks.notify.p99_over_p50", "tasks.notify.busy_p99");

  private static final List<String> OWNERS =
      List.of(
          "tasks.bound.affine", "tasks.bound.hot", "tasks.bound.slept", "tasks.bound.slept.p99");

  private static final List<String> BUSY =
      List.of("tasks.busy.forking_p99", "tasks.busy.loops_p99", "tasks.blocked_natives.p99");

  private static final List<String> PING_PONG = List.of("tasks.pingpong.own_over_jdk");

  private static final List<String> MILLION =
      List.of("tasks.million.bytes", "tasks.million.threads");

  private static List<String> idsOnTwoCores() {
    return Stream.of(FORKS, SUSPENDING, NOTIFY, PING_PONG, OWNERS, BUSY, MILLION)
        .flatMap(List::stream)
        .toList();
  }

  @Override
  public boolean takesOnly() {
    return true;
  }

  /** Whole groups are measured, and of each the rows given that are asked for. */
  @Override
  public List<Row> run(Options options, Progress progress) throws Exception {
    int cores = ChildProcess.cores(2);
    List<String> onMore = idsOnMore(ChildProcess.cores(Integer.MAX_VALUE));
    Map<Integer, Recursion> known = new HashMap<>();
    if (options.wantsAny(FORKS) || options.wantsAny(onMore)) {
      progress.done(String.format(Locale.ROOT, "forks, on 1 and on %d cores", cores));
      measure(options, TaskWorker.Group.FORKS, 1, List.of());
      Recursion alone = recursion();
      addForks(alone);
      measure(options, TaskWorker.Group.FORKS, cores, List.of());
      Recursion two = recursion();
      addParallelForks(alone, two);
      known.putAll(Map.of(1, alone, 2, two));
    }
    if (options.wantsAny(SUSPENDING)) {
      progress.done(String.format(Locale.ROOT, "forks that suspend, on %d cores", cores));
      addSuspending(options, cores);
    }
    if (options.wantsAny(NOTIFY)) {
      progress.done(String.format(Locale.ROOT, "wakes, on %d cores", cores));
      measure(options, TaskWorker.Group.NOTIFY, cores, List.of());
      addNotify(cores, id -> id);
    }
    if (options.wantsAny(PING_PONG)) {
      progress.done("ping-pong: own carriers and the JDK's in turn");
      addPingPong(options, cores);
    }
    if (options.wantsAny(OWNERS)) {
      progress.done(String.format(Locale.ROOT, "owners, on %d cores", cores));
      measure(options, TaskWorker.Group.OWNERS, cores, List.of());
      addOwners();
    }
    if (options.wantsAny(BUSY)) {
      progress.done(String.format(Locale.ROOT, "wakes beside busy carriers, on %d cores", cores));
      measure(options, TaskWorker.Group.BUSY, cores, List.of());
      addBusy();
    }
    if (options.wantsAny(MILLION)) {
      progress.done("a million parked tasks");
      measure(options, TaskWorker.Group.MILLION, cores, List.of());
      addMillion(cores);
    }
    if (options.wantsAny(onMore)) {
      measureOnMore(options, progress, known);
    }
    return rows.stream().filter(row -> options.wants(row.id())).toList();
  }

  /**
   * Forks and wakes on each number of threads, where there are more than two cores.
   *
   * @param known the recursion where it was measured already
   */
  private void measureOnMore(Options options, Progress progress, Map<Integer, Recursion> known)
      throws Exception {
    List<Integer> counts = threads(ChildProcess.cores(Integer.MAX_VALUE));
    for (int threads : counts) {
      Recursion here = known.get(threads);
      if (here == null) {
        progress.done(String.format(Locale.ROOT, "pfib(31), on %d cores", threads));
        measure(options, TaskWorker.Group.RECURSION, threads, List.of());
        here = recursion();
      }
      addRecursion(threads, here, Objects.requireNonNull(known.get(1)));
    }
    for (int threads : counts) {
      if (threads != 2) {
        progress.done(String.format(Locale.ROOT, "wakes, on %d cores", threads));
        measure(options, TaskWorker.Group.NOTIFY, threads, List.of());
        addNotify(threads, id -> on(id, threads));
      }
    }
  }

  private void measure(Options options, TaskWorker.Group group, int cores, List<String> properties)
      throws Exception {
    List<String> args = new ArrayList<>(List.of("bench", "tasks-worker", group.name()));
    if (options.quick()) {
      args.add("--quick");
    }
    ChildProcess.Result child = ChildProcess.onCores(cores, properties, args);
    child.samples().forEach(line -> samples.put(line.name(), line.samples()));
  }

  /** The same recursion, in nanoseconds, in turn: as forks of ours, and on a ForkJoinPool. */
  private record Recursion(Samples frames, Samples pool) {}

  private Recursion recursion() {
    return new Recursion(of("pfib.frames"), of("pfib.pool"));
  }

  private Samples of(String name) {
    return Objects.requireNonNull(samples.get(name), () -> "no samples of " + name);
  }

  private void addForks(Recursion alone) {
    Samples added = alone.frames().minus(of("pfib.serial")).times(1 / ForkProbes.forks());
    rows.add(Row.median("tasks.fork.added", "ns", "lower", added).bounds(20.0, 5.0));
    rows.add(Row.median("tasks.fork.garbage", "B", "lower", of("pfib.bytes")).bounds(32.0, 0.0));
    rows.add(overPool("tasks.pfib31.ratio_fjp.1thread", alone));
  }

  private static Row overPool(String id, Recursion recursion) {
    return Row.ratio(id, recursion.frames(), recursion.pool()).bounds(0.5, 0.15);
  }

  private void addParallelForks(Recursion alone, Recursion two) {
    rows.add(overPool("tasks.pfib31.ratio_fjp", two));
    Samples speedup = alone.frames().over(two.frames());
    rows.add(Row.median("tasks.pfib31.speedup", "x", "higher", speedup).bounds(1.5, 1.9));
    rows.add(Row.ratio("tasks.fine", of("fine.ours"), of("fine.theirs")).bounds(1.3, 1.0));
    rows.add(
        Row.median("tasks.scope.fork.nanos", "ns", "lower", of("scope.nanos")).bounds(60.0, 25.0));
    rows.add(
        Row.median("tasks.scope.fork.bytes", "B", "lower", of("scope.bytes")).bounds(160.0, 56.0));
  }

  /** Beside the time and the speed-up of a ForkJoinPool with as many threads. */
  private void addRecursion(int threads, Recursion here, Recursion alone) {
    Samples millis = here.frames().times(MILLIS);
    rows.add(
        Row.median(on("tasks.pfib31.millis", threads), "ms", "lower", millis)
            .against(here.pool().times(MILLIS).median()));
    if (threads > 2) {
      rows.add(overPool(on("tasks.pfib31.ratio_fjp", threads), here));
      Samples speedup = alone.frames().over(here.frames());
      rows.add(
          Row.median(on("tasks.pfib31.speedup", threads), "x", "higher", speedup)
              .against(alone.pool().over(here.pool()).median()));
    }
  }

  /** An owner that slept is beside a plain thread that did: the rest of it is ours. */
  private void addOwners() {
    Samples wake = of("wake.slept").times(MICROS);
    rows.add(micros("tasks.bound.affine", of("affine")).bounds(2.0, 0.7));
    rows.add(micros("tasks.bound.hot", of("shifted.hot")).bounds(8.0, 2.5));
    rows.add(
        micros("tasks.bound.slept", of("shifted.slept")).bounds(40.0, 15.0).against(wake.median()));
    rows.add(late("tasks.bound.slept.p99", of("shifted.slept")).against(wake.p99()));
  }

  /** A waiter that carriers run is beside a plain thread that waits while they are as busy. */
  private void addBusy() {
    rows.add(
        late("tasks.busy.forking_p99", of("busy.forking"))
            .bounds(100.0, 50.0)
            .against(of("busy.forking.thread").times(MICROS).p99()));
    rows.add(
        late("tasks.busy.loops_p99", of("busy.loops"))
            .bounds(1000.0, 300.0)
            .against(of("busy.loops.thread").times(MICROS).p99()));
    rows.add(late("tasks.blocked_natives.p99", of("blocked64")).bounds(1000.0, 100.0));
  }

  /** The worst of all numbers of pairs: one, as many as cores, four times as many. */
  private void addNotify(int cores, UnaryOperator<String> id) {
    List<Samples> all = List.of(of("notify.1"), of("notify." + cores), of("notify." + 4 * cores));
    double p50 = all.stream().mapToDouble(Samples::median).max().orElseThrow();
    double tail = all.stream().mapToDouble(each -> each.p99() / each.median()).max().orElseThrow();
    rows.add(Row.exact(id.apply("tasks.notify.p50"), "us", "lower", p50 * MICROS).bounds(3.0, 1.0));
    rows.add(Row.exact(id.apply("tasks.notify.p99_over_p50"), "x", "lower", tail).bounds(5.0, 3.0));
    rows.add(late(id.apply("tasks.notify.busy_p99"), of("notify.busy")).bounds(60.0, 10.0));
  }

  /** The JDK's scheduler has two speeds here, by process: the medians of some. */
  private void addSuspending(Options options, int cores) throws Exception {
    Map<String, List<Double>> medians = new HashMap<>();
    for (int round = 0; round < (options.quick() ? 1 : 5); round++) {
      measure(options, TaskWorker.Group.SUSPENDING, cores, List.of());
      for (String what : List.of("spawn_block", "parked1000")) {
        for (String who : List.of(".ours", ".theirs", ".inherited")) {
          medians
              .computeIfAbsent(what + who, name -> new ArrayList<>())
              .add(of(what + who).median());
        }
      }
    }
    medians.forEach((name, values) -> samples.put(name, Samples.of(values)));
    addSuspending("tasks.spawn_block.one", "spawn_block", 0.6, 0.3);
    addSuspending("tasks.spawn_block.parked1000", "parked1000", 1.5, 1.0);
  }

  private void addSuspending(String id, String what, double must, double goal) {
    rows.add(Row.ratio(id, of(what + ".ours"), of(what + ".theirs")).bounds(must, goal));
    rows.add(Row.ratio(id + ".same_carriers", of(what + ".ours"), of(what + ".inherited")));
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
    return Row.late(id, "us", nanos.times(MICROS));
  }
}
