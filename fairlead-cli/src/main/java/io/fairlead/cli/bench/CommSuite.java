package io.fairlead.cli.bench;

import io.fairlead.cli.Progress;
import io.fairlead.cli.bench.CommRuns.Job;
import io.fairlead.cli.bench.CommWorker.Group;
import io.fairlead.cli.bench.InstalledMpi.Binding;
import io.fairlead.cli.bench.InstalledMpi.Flavour;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.task.WaitMode;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Messages between two ranks of this machine beside C (rows 004).
 *
 * <p>It starts two ranks itself, by each MPI that is installed, bound to a core each and unbound. C
 * and ours are processes in turn, every other time the other way round; a ratio is that of the
 * medians of one such round, and a row gives the median of these, with the worst as p99.
 */
final class CommSuite implements PartwiseSuite {
  /** By which ranks of a launcher send. */
  private static final String MPI = "mpi";

  private static final String IN_PROCESS = "inprocess";

  private static final int ROUNDS = 5;
  private static final int QUICK_SCALE = 10;
  private static final int LAUNCHED_CLOSES = 30;
  private static final double MIB = 1 << 20;
  private static final double MICROS = 1e-3;
  private static final double MILLIS_MAX = CommCloses.LIMIT.toMillis();

  /**
   * A figure of two ranks.
   *
   * @param row what its rows are called, before where it was measured
   * @param name what our process calls it
   * @param part what the twin measures it with, under the name {@code theirs}; null: in C there is
   *     nothing to compare with
   */
  private record Figure(
      String row,
      Group group,
      String name,
      @Nullable String part,
      String theirs,
      Kind kind,
      Threads threads,
      @Nullable Double must,
      @Nullable Double goal) {
    String id(String where) {
      return "comm." + row + "." + where;
    }
  }

  private enum Kind {
    /** Nanoseconds, over those of C. */
    TIME_OVER_C,
    /** A rate, over that of C. */
    RATE_OVER_C,
    /** Nanoseconds, as they are. */
    TIME
  }

  /** Which threads of a rank may enter the library; it is chosen at its start. */
  private enum Threads {
    /** Any, one at a time: tasks do. */
    SERIALIZED,
    /** The communication thread only: what tasks send is shifted to it. */
    FUNNELED;

    /** For the JVM of a rank. */
    List<String> properties() {
      return this == SERIALIZED
          ? CommWorker.FIXED_HEAP
          : Stream.concat(
                  CommWorker.FIXED_HEAP.stream(), Stream.of("-Dfairlead.mpi.threads=funneled"))
              .toList();
    }
  }

  private static final List<Figure> FIGURES =
      List.of(
          overC("8B.inline", Group.PING_PONG, "half.8", "pingpong", "half.8", 1.3, 1.15),
          overC("8B.affine", Group.AFFINE, "affine.8", "pingpong", "half.8", 4.0, 2.0),
          overC("1MiB.inline", Group.PING_PONG, "half.1m", "pingpong", "half.1m", 1.1, 1.02),
          shifted(
              "1MiB.shift", Group.PING_PONG, "half.1m", "pingpong", Kind.TIME_OVER_C, 1.2, 1.05),
          rateOverC("rate.inline", Group.RATE, "rate", null, null),
          rateOverC("rate.affine", Group.AFFINE_RATE, "affine.rate", 0.15, 0.5),
          shifted("rate.shift", Group.RATE, "rate", "rate", Kind.RATE_OVER_C, 0.05, 0.12),
          overC("blobs", Group.BLOBS, "blobs", "blobs", "blobs", 1.5, 1.2),
          overC("blobs.made", Group.BLOBS, "blobs.made", "blobs", "blobs", null, null),
          alone("8B.shift.callback", Group.SHIFT, "shift.callback", 5, 3),
          alone("8B.shift.task", Group.SHIFT, "shift.task", 12, 6));

  private static Figure overC(
      String row,
      Group group,
      String name,
      String part,
      String theirs,
      @Nullable Double must,
      @Nullable Double goal) {
    return new Figure(
        row, group, name, part, theirs, Kind.TIME_OVER_C, Threads.SERIALIZED, must, goal);
  }

  private static Figure rateOverC(
      String row, Group group, String name, @Nullable Double must, @Nullable Double goal) {
    return new Figure(
        row, group, name, "rate", "rate", Kind.RATE_OVER_C, Threads.SERIALIZED, must, goal);
  }

  /** By tasks, of which none may enter. */
  private static Figure shifted(
      String row, Group group, String name, String part, Kind kind, double must, double goal) {
    return new Figure(row, group, name, part, name, kind, Threads.FUNNELED, must, goal);
  }

  private static Figure alone(String row, Group group, String name, double must, double goal) {
    return new Figure(row, group, name, null, name, Kind.TIME, Threads.SERIALIZED, must, goal);
  }

  /** In one process any thread may enter, so nothing is shifted there. */
  private static List<Figure> figuresOfOneProcess() {
    return FIGURES.stream().filter(each -> each.threads() == Threads.SERIALIZED).toList();
  }

  private final @Nullable List<InstalledMpi> given;
  private final Path script;
  private final String transport;
  private final @Nullable String hpgmg;

  CommSuite() {
    this(
        null,
        Path.of(System.getProperty("fairlead.root", "."), "fairlead-lab/peers/mpi/twin.sh"),
        MPI,
        System.getenv("FAIRLEAD_HPGMG"));
  }

  /**
   * Measures with other launchers and another twin.
   *
   * @param launchers null: those that are installed
   * @param transport what ranks of a launcher send by
   */
  CommSuite(@Nullable List<InstalledMpi> launchers, Path script, String transport) {
    this(launchers, script, transport, null);
  }

  /** As the other, with HPGMG's sources in a folder; null: nowhere. */
  CommSuite(
      @Nullable List<InstalledMpi> launchers,
      Path script,
      String transport,
      @Nullable String hpgmg) {
    this.hpgmg = hpgmg;
    this.given = launchers;
    this.script = script;
    this.transport = transport;
  }

  @Override
  public String name() {
    return "comm";
  }

  @Override
  public String about() {
    return "messages between two ranks beside C: latency, rate, floods, closes, idle engines";
  }

  @Override
  public boolean takesOnly() {
    return true;
  }

  /** Of the rows whose ranks have a device worth the name; the others are of the host's. */
  @Override
  public boolean takesDevice() {
    return true;
  }

  @Override
  public boolean startsRanks() {
    return true;
  }

  @Override
  public List<String> ids(Options options) {
    return parts(options).stream().flatMap(part -> part.ids().stream()).toList();
  }

  @Override
  public void run(Options options, Progress progress, Consumer<List<Row>> measured)
      throws Exception {
    List<InstalledMpi> launchers = given == null ? InstalledMpi.found() : given;
    try (CommRuns runs = new CommRuns(launchers, script, transport, hpgmg, progress)) {
      for (Place place : parts(options)) {
        if (options.wantsAny(place.ids())) {
          runs.begin();
          Part part = new Part(place.what(), place.ids(), () -> place.measure().run(runs));
          Part.run(List.of(part), options, progress, measured);
        }
      }
    }
  }

  /** What is measured together, and where. */
  private record Place(String what, List<String> ids, Measure measure) {}

  private interface Measure {
    /** What it leaves out has no figure. */
    List<Row> run(CommRuns runs) throws Exception;
  }

  private List<Place> parts(Options options) {
    List<Place> parts = new ArrayList<>();
    parts.add(
        new Place(
            "two ranks in one process",
            figuresOfOneProcess().stream().map(figure -> figure.id(IN_PROCESS)).toList(),
            runs -> figuresInProcess(options, runs)));
    parts.add(
        new Place(
            "submits on a device manager, in process",
            submitIds(IN_PROCESS),
            runs -> submits(IN_PROCESS, inProcess(runs, options, Group.SUBMIT), runs)));
    parts.add(
        new Place(
            "tasks that wait to receive, one carrier",
            List.of("comm.waiters.unserved", "comm.waiters.bytes"),
            runs -> waiters(options, runs)));
    parts.add(
        new Place(
            "closes under load, in process",
            closeIds(IN_PROCESS),
            runs -> {
              Map<String, Samples> samples = inProcess(runs, options, Group.CLOSE);
              return samples.isEmpty()
                  ? missing(closeIds(IN_PROCESS), runs)
                  : closes(IN_PROCESS, List.of(Closed.inOneProcess(samples)));
            }));
    parts.add(
        new Place(
            "messages of device buffers beside spills",
            List.of("comm.spill.wrong", "comm.spill.spilled"),
            runs -> spills(options, runs)));
    parts.add(
        new Place(
            "messages of a GPU's memory in one process, and V-cycles in each waiting mode",
            deviceIds(IN_PROCESS),
            runs ->
                devices(
                    IN_PROCESS,
                    options,
                    runs,
                    job -> runs.inProcess(ChildProcess.Place.all(), job))));
    for (Flavour flavour : Flavour.values()) {
      for (Binding binding : bindings(options)) {
        parts.addAll(inPairs(flavour, binding, options));
      }
      parts.addAll(once(flavour, options));
    }
    return parts;
  }

  /**
   * Launchers choose one of them; both mean something else for an engine with a thread of its own.
   */
  private static List<Binding> bindings(Options options) {
    return options.quick() ? List.of(Binding.UNBOUND) : List.of(Binding.values());
  }

  private List<Place> inPairs(Flavour flavour, Binding binding, Options options) {
    String where = flavour.word() + "." + binding.word();
    return List.of(
        new Place(
            "two ranks by " + flavour.word() + ", " + binding.word() + ", in turn with C",
            FIGURES.stream().map(figure -> figure.id(where)).toList(),
            runs -> figuresByLauncher(flavour, binding, options, runs)),
        new Place(
            "an idle engine of " + flavour.word() + ", " + binding.word(),
            idleIds(where),
            runs -> idle(flavour, binding, options, runs)));
  }

  private List<Place> once(Flavour flavour, Options options) {
    String where = flavour.word();
    return List.of(
        new Place(
            "submits on a device manager, " + where,
            submitIds(where),
            runs -> {
              Job job = job(options, EnumSet.of(Group.SUBMIT));
              return submits(where, launched(runs, flavour, Binding.UNBOUND, job), runs);
            }),
        new Place(
            "V-cycles on one rank and on two by " + where,
            CommSpeedUps.ids(where),
            runs -> vcycles(flavour, options, runs)),
        new Place(
            "messages of a GPU's memory by " + where + ", and V-cycles in each waiting mode",
            deviceIds(where),
            runs ->
                devices(
                    where, options, runs, job -> launched(runs, flavour, Binding.UNBOUND, job))),
        new Place("a flood, " + where, floodIds(where), runs -> flood(flavour, options, runs)),
        new Place(
            "closes under load, " + where,
            closeIds(where),
            runs -> launchedCloses(flavour, options, runs)));
  }

  private static List<Row> vcycles(Flavour flavour, Options options, CommRuns runs)
      throws Exception {
    Optional<InstalledMpi> launcher = runs.launcher(flavour);
    return launcher.isEmpty()
        ? missing(CommSpeedUps.ids(flavour.word()), runs)
        : new CommSpeedUps(launcher.get(), options.quick(), scale(options), runs)
            .rows(flavour.word());
  }

  private static List<Row> missing(List<String> ids, CommRuns runs) {
    return ids.stream().map(id -> Row.missing(id, runs.why())).toList();
  }

  // --- running workers
  // ----------------------------------------------------------------------------

  private static Job job(Options options, Set<Group> groups) {
    return Job.of(groups, scale(options));
  }

  private static int scale(Options options) {
    return options.quick() ? QUICK_SCALE : 1;
  }

  private static Map<String, Samples> inProcess(CommRuns runs, Options options, Group group)
      throws Exception {
    return runs.inProcess(ChildProcess.Place.all(), job(options, EnumSet.of(group)));
  }

  /** Nothing where there is no such MPI. */
  private static Map<String, Samples> launched(
      CommRuns runs, Flavour flavour, Binding binding, Job job) throws Exception {
    Optional<InstalledMpi> launcher = runs.launcher(flavour);
    return launcher.isEmpty() ? Map.of() : runs.launched(launcher.get(), binding, job);
  }

  // --- figures in turn with C
  // ---------------------------------------------------------------------

  /** In one process there is nothing to compare with: what the engine takes without a library. */
  private static List<Row> figuresInProcess(Options options, CommRuns runs) throws Exception {
    List<Figure> wanted =
        figuresOfOneProcess().stream()
            .filter(figure -> options.wants(figure.id(IN_PROCESS)))
            .toList();
    Map<String, Samples> ours =
        runs.inProcess(
            ChildProcess.Place.all(),
            new Job(groups(wanted), scale(options), 0, CommWorker.FIXED_HEAP));
    List<Row> rows = new ArrayList<>();
    for (Figure figure : wanted) {
      Samples samples = ours.get(figure.name());
      rows.add(
          samples == null
              ? Row.missing(figure.id(IN_PROCESS), runs.why())
              : figure.kind() == Kind.RATE_OVER_C
                  ? Row.median(figure.id(IN_PROCESS), "1/s", "higher", samples)
                  : Row.median(figure.id(IN_PROCESS), "us", "lower", samples.times(MICROS)));
    }
    return rows;
  }

  private static Set<Group> groups(List<Figure> figures) {
    Set<Group> groups = EnumSet.noneOf(Group.class);
    figures.forEach(figure -> groups.add(figure.group()));
    return groups;
  }

  private static List<Row> figuresByLauncher(
      Flavour flavour, Binding binding, Options options, CommRuns runs) throws Exception {
    String where = flavour.word() + "." + binding.word();
    List<Figure> wanted =
        FIGURES.stream().filter(figure -> options.wants(figure.id(where))).toList();
    Optional<InstalledMpi> launcher = runs.launcher(flavour);
    if (launcher.isEmpty()) {
      return missing(wanted.stream().map(figure -> figure.id(where)).toList(), runs);
    }
    Rounds rounds = new Rounds(wanted);
    for (int round = 0; round < (options.quick() ? 1 : ROUNDS); round++) {
      rounds.measure(round, launcher.get(), binding, options, runs);
    }
    return rounds.rows(where, runs);
  }

  /** Medians of ours and of C, of rounds in which both were measured. */
  private static final class Rounds {
    private final List<Figure> figures;
    private final List<List<Double>> ours = new ArrayList<>();
    private final List<List<Double>> theirs = new ArrayList<>();

    Rounds(List<Figure> figures) {
      this.figures = figures;
      figures.forEach(
          figure -> {
            ours.add(new ArrayList<>());
            theirs.add(new ArrayList<>());
          });
    }

    /** Every other round begins with ours: nobody always comes first. */
    void measure(int round, InstalledMpi launcher, Binding binding, Options options, CommRuns runs)
        throws Exception {
      boolean oursFirst = round % 2 == 1;
      Map<String, Samples> c = oursFirst ? Map.of() : c(launcher, binding, options, runs);
      Map<Threads, Map<String, Samples>> mine = ours(launcher, binding, options, runs);
      add(mine, oursFirst ? c(launcher, binding, options, runs) : c);
    }

    /** Ranks are started once for each way to use threads that is wanted. */
    private Map<Threads, Map<String, Samples>> ours(
        InstalledMpi launcher, Binding binding, Options options, CommRuns runs) throws Exception {
      Map<Threads, Map<String, Samples>> all = new EnumMap<>(Threads.class);
      for (Threads threads : Threads.values()) {
        List<Figure> those = figures.stream().filter(each -> each.threads() == threads).toList();
        if (!those.isEmpty()) {
          Job job = new Job(groups(those), scale(options), 0, threads.properties());
          all.put(threads, runs.launched(launcher, binding, job));
        }
      }
      return all;
    }

    private Map<String, Samples> c(
        InstalledMpi launcher, Binding binding, Options options, CommRuns runs) throws Exception {
      List<String> parts =
          figures.stream().flatMap(each -> Stream.ofNullable(each.part())).distinct().toList();
      return parts.isEmpty() ? Map.of() : runs.twin(launcher, binding, scale(options), parts);
    }

    private void add(Map<Threads, Map<String, Samples>> mine, Map<String, Samples> c) {
      for (int i = 0; i < figures.size(); i++) {
        Figure figure = figures.get(i);
        Samples our = mine.getOrDefault(figure.threads(), Map.of()).get(figure.name());
        Samples their = c.get(figure.theirs());
        if (our != null && figure.kind() == Kind.TIME) {
          ours.get(i).add(our.median());
        } else if (our != null && their != null) {
          ours.get(i).add(our.median());
          theirs.get(i).add(their.median());
        }
      }
    }

    List<Row> rows(String where, CommRuns runs) {
      List<Row> rows = new ArrayList<>();
      for (int i = 0; i < figures.size(); i++) {
        rows.add(row(figures.get(i), where, ours.get(i), theirs.get(i), runs));
      }
      return rows;
    }

    private static Row row(
        Figure figure, String where, List<Double> ours, List<Double> theirs, CommRuns runs) {
      String id = figure.id(where);
      if (ours.isEmpty()) {
        return Row.missing(id, runs.why());
      }
      Samples mine = Samples.of(ours);
      if (figure.kind() == Kind.TIME) {
        return Row.median(id, "us", "lower", mine.times(MICROS))
            .bounds(figure.must(), figure.goal());
      }
      Samples c = Samples.of(theirs);
      runs.say(
          String.format(
              Locale.ROOT, "%s: ours %s, C %s", id, CommRuns.spread(mine), CommRuns.spread(c)));
      Row row = Row.ratio(id, mine, c);
      return (figure.kind() == Kind.RATE_OVER_C ? row.higherIsBetter() : row)
          .bounds(figure.must(), figure.goal());
    }
  }

  // --- submits
  // ------------------------------------------------------------------------------------

  private static List<String> submitIds(String where) {
    return List.of("comm.submit.p999." + where, "comm.submit.entries." + where);
  }

  private static List<Row> submits(String where, Map<String, Samples> samples, CommRuns runs) {
    Samples tail = samples.get("submit.p999");
    Samples entries = samples.get("submit.entries");
    if (tail == null || entries == null) {
      return missing(submitIds(where), runs);
    }
    Samples middle = samples.getOrDefault("submit.p50", tail);
    double floor = samples.getOrDefault("submit.nothing", tail).median();
    double garbage = samples.getOrDefault("submit.garbage", tail).median();
    runs.say(
        "submits, %s: beside them, p99.9 of nothing %.0f ns, of as much garbage %.0f ns"
            .formatted(where, floor, garbage));
    Row row =
        new Row(
            "comm.submit.p999." + where,
            tail.median(),
            "ns",
            "lower",
            null,
            null,
            1,
            middle.median(),
            tail.median(),
            500.0,
            100.0);
    return List.of(
        row.against(floor),
        Row.exact("comm.submit.entries." + where, "calls", "lower", entries.max())
            .bounds(0.0, null));
  }

  // --- waiters
  // ------------------------------------------------------------------------------------

  private static List<Row> waiters(Options options, CommRuns runs) throws Exception {
    Map<String, Samples> samples =
        runs.inProcess(ChildProcess.Place.tight(1), job(options, EnumSet.of(Group.WAITERS)));
    List<Row> rows = new ArrayList<>();
    for (Samples unserved : in(samples, "waiters.unserved")) {
      rows.add(
          Row.exact("comm.waiters.unserved", "tasks", "lower", unserved.max()).bounds(0.0, null));
    }
    for (Samples bytes : in(samples, "waiters.bytes")) {
      rows.add(Row.exact("comm.waiters.bytes", "B", "lower", bytes.max()).bounds(null, 1024.0));
    }
    return rows.isEmpty()
        ? missing(List.of("comm.waiters.unserved", "comm.waiters.bytes"), runs)
        : rows;
  }

  private static List<Samples> in(Map<String, Samples> samples, String name) {
    Samples found = samples.get(name);
    return found == null ? List.of() : List.of(found);
  }

  // --- closes
  // -------------------------------------------------------------------------------------

  private static List<String> closeIds(String where) {
    return List.of("comm.close.lost." + where, "comm.close.late." + where);
  }

  /**
   * What became of some worlds that were closed.
   *
   * @param lost messages that are not accounted for, or twice
   * @param late worlds that took too long, or in which something had not ended
   */
  record Closed(int worlds, double lost, int late) {
    /** Each world's figures come from one process. */
    static Closed inOneProcess(Map<String, Samples> samples) {
      Samples lost = told(samples).minus(figure(samples, "close.accounted")).map(Math::abs);
      return new Closed(lost.count(), lost.sum(), late(samples).above(0));
    }

    /** All figures are of one world, whose ranks are processes. */
    static Closed ofOneWorld(Map<String, Samples> samples) {
      double lost = Math.abs(told(samples).sum() - figure(samples, "close.accounted").sum());
      return new Closed(1, lost, late(samples).max() > 0 ? 1 : 0);
    }

    private static Samples told(Map<String, Samples> samples) {
      return figure(samples, "close.told");
    }

    /** For each world, or rank of one: above 0 if it was late. */
    private static Samples late(Map<String, Samples> samples) {
      Samples slow = figure(samples, "close.millis").map(each -> each > MILLIS_MAX ? 1 : 0);
      return slow.plus(figure(samples, "close.open"));
    }

    private static Samples figure(Map<String, Samples> samples, String name) {
      Samples found = samples.get(name);
      if (found == null) {
        throw new IllegalStateException("no samples of " + name);
      }
      return found;
    }
  }

  private static List<Row> closes(String where, List<Closed> closed) {
    int worlds = closed.stream().mapToInt(Closed::worlds).sum();
    double lost = closed.stream().mapToDouble(Closed::lost).sum();
    double late = closed.stream().mapToInt(Closed::late).sum();
    return List.of(
        counted("comm.close.lost." + where, "messages", lost, worlds),
        counted("comm.close.late." + where, "closes", late, worlds));
  }

  private static Row counted(String id, String unit, double value, int of) {
    return new Row(id, value, unit, "lower", null, null, of, value, value, 0.0, null);
  }

  /** A launch for each; one that does not end counts as late. */
  private static List<Row> launchedCloses(Flavour flavour, Options options, CommRuns runs)
      throws Exception {
    Optional<InstalledMpi> launcher = runs.launcher(flavour);
    if (launcher.isEmpty()) {
      return missing(closeIds(flavour.word()), runs);
    }
    List<Closed> closed = new ArrayList<>();
    int launches = options.quick() ? 2 : LAUNCHED_CLOSES;
    for (int seed = 0; seed < launches; seed++) {
      Job job = new Job(EnumSet.of(Group.CLOSE), scale(options), seed, List.of());
      Map<String, Samples> samples = runs.launched(launcher.get(), Binding.UNBOUND, job);
      closed.add(samples.isEmpty() ? new Closed(1, 0, 1) : Closed.ofOneWorld(samples));
    }
    return closes(flavour.word(), closed);
  }

  // --- spills
  // -------------------------------------------------------------------------------------

  private static List<Row> spills(Options options, CommRuns runs) throws Exception {
    Map<String, Samples> samples = inProcess(runs, options, Group.SPILL);
    List<Row> rows = new ArrayList<>();
    for (Samples messages : in(samples, "spill.messages")) {
      double wrong = samples.getOrDefault("spill.wrong", messages).max();
      double spilled = samples.getOrDefault("spill.spilled", messages).max();
      rows.add(counted("comm.spill.wrong", "messages", wrong, (int) messages.max()));
      rows.add(Row.exact("comm.spill.spilled", "buffers", "higher", spilled));
    }
    return rows.isEmpty() ? missing(List.of("comm.spill.wrong", "comm.spill.spilled"), runs) : rows;
  }

  // --- idle
  // ---------------------------------------------------------------------------------------

  private static List<String> idleIds(String where) {
    return List.of("comm.idle.cpu." + where, "comm.idle.first." + where);
  }

  private static List<Row> idle(Flavour flavour, Binding binding, Options options, CommRuns runs)
      throws Exception {
    String where = flavour.word() + "." + binding.word();
    Map<String, Samples> samples =
        launched(runs, flavour, binding, job(options, EnumSet.of(Group.IDLE)));
    List<Row> rows = new ArrayList<>();
    for (Samples cpu : in(samples, "idle.cpu")) {
      rows.add(Row.exact("comm.idle.cpu." + where, "%", "lower", cpu.max()).bounds(3.0, 1.0));
    }
    for (Samples first : in(samples, "idle.first")) {
      rows.add(
          Row.median("comm.idle.first." + where, "us", "lower", first.times(MICROS))
              .bounds(500.0, 200.0));
    }
    return rows.isEmpty() ? missing(idleIds(where), runs) : rows;
  }

  // --- devices
  // -------------------------------------------------------------------------------------

  private static List<String> deviceIds(String where) {
    return Stream.concat(
            Stream.of("comm.device.start." + where),
            Stream.of(WaitMode.values()).map(mode -> vcycleId(mode, where)))
        .toList();
  }

  private static String vcycleId(WaitMode mode, String where) {
    return "comm.device.vcycle." + mode.name().toLowerCase(Locale.ROOT) + "." + where;
  }

  private interface Measured {
    Map<String, Samples> by(Job job) throws Exception;
  }

  /** Where nobody has chosen a device they are of a GPU, or not measured. */
  private static List<Row> devices(String where, Options options, CommRuns runs, Measured measured)
      throws Exception {
    BenchDevice device = BenchDevice.of(options);
    if (!device.isCuda() && options.device().equals(FairleadConfig.AUTO)) {
      runs.say("no GPU here: comm.device.* have no figures (--device host measures them anyhow)");
      return deviceIds(where).stream().map(id -> Row.missing(id, "no GPU")).toList();
    }
    Job job = job(options, EnumSet.of(Group.DEVICE)).on(device.driver());
    Map<String, Samples> ours = measured.by(job);
    Samples sent = ours.get("device.sent");
    Samples spun = ours.get("device.spun");
    Samples plain = ours.get("device.plain");
    List<Row> rows = new ArrayList<>();
    String start = deviceIds(where).getFirst();
    if (sent == null || spun == null || plain == null) {
      rows.add(Row.missing(start, runs.why()));
    } else {
      double more = CommDevices.Starts.more(sent, spun, plain) * MICROS;
      rows.add(Row.exact(start, "us", "lower", more).bounds(5.0, null));
      runs.say(
          String.format(
              Locale.ROOT,
              "%s: %.1f us until it is there, %.1f until who spins has it, %.1f to send that",
              start,
              sent.median() * MICROS,
              spun.median() * MICROS,
              plain.median() * MICROS));
    }
    for (WaitMode mode : WaitMode.values()) {
      Samples seconds = ours.get("device.vcycle." + mode);
      String id = vcycleId(mode, where);
      rows.add(
          seconds == null
              ? Row.missing(id, runs.why())
              : Row.median(id, "us", "lower", seconds.times(1e6)));
    }
    return rows;
  }

  // --- floods
  // -------------------------------------------------------------------------------------

  private static List<String> floodIds(String where) {
    return List.of(
        "comm.flood.receiver." + where, "comm.flood.sender." + where, "comm.flood.wrong." + where);
  }

  private static List<Row> flood(Flavour flavour, Options options, CommRuns runs) throws Exception {
    String where = flavour.word();
    Optional<InstalledMpi> launcher = runs.launcher(flavour);
    if (launcher.isEmpty()) {
      return missing(floodIds(where), runs);
    }
    Map<String, Samples> c =
        runs.twin(launcher.get(), Binding.UNBOUND, scale(options), List.of("flood"));
    Job job = new Job(EnumSet.of(Group.FLOOD), scale(options), 0, CommWorker.FIXED_HEAP);
    Map<String, Samples> ours = runs.launched(launcher.get(), Binding.UNBOUND, job);
    List<Row> rows = new ArrayList<>();
    for (String side : List.of("receiver", "sender")) {
      for (Samples grown : in(ours, "flood." + side)) {
        Row row = Row.exact("comm.flood." + side + "." + where, "MiB", "lower", grown.max() / MIB);
        row = side.equals("receiver") ? row.bounds(64.0, 16.0) : row;
        Samples theirs = c.get("flood." + side);
        rows.add(theirs == null ? row : row.against(theirs.max() / MIB));
      }
    }
    for (Samples wrong : in(ours, "flood.wrong")) {
      rows.add(
          Row.exact("comm.flood.wrong." + where, "messages", "lower", wrong.max())
              .bounds(0.0, null));
    }
    return rows.isEmpty() ? missing(floodIds(where), runs) : rows;
  }
}
