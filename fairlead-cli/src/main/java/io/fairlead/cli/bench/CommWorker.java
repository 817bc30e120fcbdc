package io.fairlead.cli.bench;

import io.fairlead.cli.HangWatch;
import io.fairlead.comm.CommConfig;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/**
 * The process in which {@link CommSuite} measures messages, or one of two that a launcher started:
 * then rank 0 prints what both have measured. Not for users.
 */
@Command(name = "comm-worker", hidden = true)
public final class CommWorker implements Callable<Integer> {
  /**
   * Enough for the few objects of messages, taken and touched at once: it grows no more, and no
   * first access is timed, which is so in C too.
   */
  static final List<String> FIXED_HEAP = List.of("-Xms512m", "-Xmx512m", "-XX:+AlwaysPreTouch");

  static final int CLOSES = 1_000;
  static final int WAITERS = 100_000;
  static final int SPILL_MESSAGES = 1_000_000;

  private static final double MILLIS = 1e-6;

  /** What is measured together. */
  enum Group {
    /** Half round trips of 8 bytes and of 1 MiB, by tasks. */
    PING_PONG,
    /** Half round trips of 8 bytes, by tasks on the communication threads. */
    AFFINE,
    /** Messages a second, by 64 tasks. */
    RATE,
    /** The same, by tasks on the communication threads. */
    AFFINE_RATE,
    /** Half round trips of a header and four blobs. */
    BLOBS,
    /** How long a message takes that a device manager submits. */
    SHIFT,
    /** What submitting costs a device manager; its world is watched. */
    SUBMIT,
    /** What many messages that nobody receives let a rank grow by. */
    FLOOD,
    /** What an engine takes that has nothing to do, and how late it is then. */
    IDLE,
    /** Many tasks that wait to receive. */
    WAITERS,
    /** Closes under load; a world for each. */
    CLOSE,
    /** Messages of device buffers while all around them is spilled. */
    SPILL,
    /** A solve and V-cycles on ranks. */
    VCYCLE,
    /** Messages of device memory, and V-cycles on ranks with a device, in every waiting mode. */
    DEVICE;

    /** It takes no longer unless it hangs. */
    Duration limit() {
      return switch (this) {
        case PING_PONG, AFFINE, BLOBS, SHIFT, SUBMIT, FLOOD, IDLE -> Duration.ofMinutes(1);
        case RATE, AFFINE_RATE -> Duration.ofMinutes(2);
        case WAITERS, CLOSE, VCYCLE, DEVICE -> Duration.ofMinutes(4);
        case SPILL -> Duration.ofMinutes(20);
      };
    }

    /** All of them, one after the other. */
    static Duration limit(Collection<Group> groups) {
      return groups.stream().map(Group::limit).reduce(Duration.ZERO, Duration::plus);
    }

    /** Whether two ranks are opened once for it, and closed in peace. */
    boolean sharesWorld() {
      return switch (this) {
        case PING_PONG, AFFINE, RATE, AFFINE_RATE, BLOBS, SHIFT, FLOOD, IDLE, WAITERS, DEVICE ->
            true;
        case SUBMIT, CLOSE, SPILL, VCYCLE -> false;
      };
    }
  }

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(arity = "1..*")
  private List<Group> groups = List.of();

  @Option(names = "--transport")
  private String transport = CommWorld.IN_PROCESS;

  @Option(names = "--scale", description = "Divides the numbers of rounds.")
  private int scale = 1;

  @Option(names = "--seed", description = "Of closes; the first one's.")
  private int seed;

  @Option(names = "--ranks", description = "Of V-cycles in one process.")
  private int ranks = 2;

  @Option(names = "--device", description = "Whose memory is sent.")
  private String device = "host";

  @Option(names = "--limit", description = "Seconds after which it is ended.")
  private @Nullable Long limitSeconds;

  /** Made by the command line parser. */
  public CommWorker() {}

  @Override
  public Integer call() {
    Set<Group> wanted = EnumSet.copyOf(groups);
    FairleadConfig config = FairleadConfig.fromSystem().withDevice(device);
    Duration limit = limitSeconds == null ? Group.limit(wanted) : Duration.ofSeconds(limitSeconds);
    try (HangWatch _ = HangWatch.start(groups.toString(), limit, line().getErr());
        Fairlead fairlead = Fairlead.open(config)) {
      if (wanted.stream().anyMatch(Group::sharesWorld)) {
        try (CommWorld world = CommWorld.open(fairlead, transport)) {
          inOneWorld(fairlead, world, wanted);
        }
      }
      if (wanted.contains(Group.SUBMIT)) {
        submits(fairlead);
      }
      if (wanted.contains(Group.CLOSE)) {
        closes(fairlead);
      }
      if (wanted.contains(Group.SPILL)) {
        spills();
      }
      if (wanted.contains(Group.VCYCLE)) {
        vcycles(fairlead);
      }
    }
    return 0;
  }

  private CommandLine line() {
    return Objects.requireNonNull(spec).commandLine();
  }

  /** On one line, by one call: another rank's lines may stand around it, not in it. */
  private void print(String name, double... samples) {
    if (samples.length > 0) {
      PrintWriter out = line().getOut();
      out.print(SampleLine.text(name, samples) + "\n");
      out.flush();
    }
  }

  private void inOneWorld(Fairlead fairlead, CommWorld world, Set<Group> wanted) {
    world.run(
        comm -> {
          CommProbes probes = new CommProbes(fairlead, comm, scale);
          CommManagers managers = new CommManagers(comm, probes, scale);
          for (Group group : wanted) {
            switch (group) {
              case PING_PONG -> {
                print("half.8", probes.small());
                print("half.1m", probes.large());
              }
              case AFFINE -> print("affine.8", probes.smallAffine());
              case RATE -> print("rate", probes.rate());
              case AFFINE_RATE -> print("affine.rate", probes.rateAffine());
              case BLOBS -> {
                print("blobs", probes.blobs());
                print("blobs.made", probes.blobsMade());
              }
              case SHIFT -> {
                print("shift.callback", managers.shiftedToCallback());
                print("shift.task", managers.shiftedToTask());
              }
              case FLOOD -> flood(probes.flood());
              case IDLE -> {
                print("idle.cpu", probes.idle());
                print("idle.first", probes.firstMessages());
              }
              case WAITERS -> waiters(new CommWaiters(fairlead, comm));
              case DEVICE -> devices(new CommDevices(fairlead, comm, scale));
              case SUBMIT, CLOSE, SPILL, VCYCLE -> {}
            }
          }
          return "measured";
        });
  }

  private void devices(CommDevices devices) {
    CommDevices.Starts starts = devices.starts();
    if (starts != null) {
      print("device.sent", starts.sent());
      print("device.spun", starts.spun());
      print("device.plain", starts.plain());
    }
    devices.vcycles().forEach((mode, seconds) -> print("device.vcycle." + mode, seconds));
  }

  private void flood(double[] figures) {
    if (figures.length > 0) {
      print("flood.receiver", figures[0]);
      print("flood.sender", figures[1]);
      print("flood.wrong", figures[2]);
    }
  }

  /** Printed by the rank whose tasks wait. */
  private void waiters(CommWaiters waiters) {
    double[] figures = waiters.serve(Math.max(1_000, WAITERS / scale));
    if (figures.length > 0) {
      print("waiters.unserved", figures[0]);
      print("waiters.bytes", figures[1]);
    }
  }

  private void submits(Fairlead fairlead) {
    CommWatch watch = new CommWatch();
    try (CommWorld world =
        CommWorld.open(fairlead, transport, 2, CommConfig.DEFAULT, watch::around)) {
      world.run(
          comm -> {
            CommProbes probes = new CommProbes(fairlead, comm, scale);
            double[] figures = new CommManagers(comm, probes, scale).submits();
            if (figures.length > 0) {
              print("submit.p50", figures[0]);
              print("submit.p999", figures[1]);
              print("submit.max", figures[2]);
              print("submit.nothing", figures[3]);
              print("submit.garbage", figures[4]);
            }
            return "measured";
          });
    }
    print("submit.entries", (double) watch.entries());
  }

  /** Many worlds where all ranks live here; else the one that there is. */
  private void closes(Fairlead fairlead) {
    int count = transport.equals(CommWorld.IN_PROCESS) ? Math.max(10, CLOSES / scale) : 1;
    List<CommCloses.Account> accounts = new ArrayList<>();
    for (int i = seed; i < seed + count; i++) {
      CommWorld world =
          CommWorld.open(
              fairlead, transport, 2 + i % 3, CommCloses.config(i), UnaryOperator.identity());
      accounts.add(CommCloses.close(fairlead, world, i));
    }
    print("close.told", accounts.stream().mapToDouble(CommCloses.Account::told).toArray());
    print(
        "close.accounted", accounts.stream().mapToDouble(CommCloses.Account::accounted).toArray());
    print("close.millis", accounts.stream().mapToDouble(each -> each.nanos() * MILLIS).toArray());
    print("close.open", accounts.stream().mapToDouble(CommCloses.Account::open).toArray());
  }

  private void vcycles(Fairlead fairlead) {
    CommVCycles cycles = new CommVCycles(scale > 1);
    if (transport.equals(CommWorld.IN_PROCESS)) {
      vcycles(cycles.inOneProcess(fairlead, ranks));
      return;
    }
    try (CommWorld world = CommWorld.open(fairlead, transport)) {
      world.run(comm -> cycles.onRanks(fairlead, comm)).ifPresent(this::vcycles);
    }
  }

  private void vcycles(CommVCycles.Figures figures) {
    print("vcycle.seconds", figures.seconds());
    print("vcycle.iterations", (double) figures.iterations());
    print("vcycle.residual", figures.residual());
  }

  private void spills() {
    CommSpills.Outcome outcome = CommSpills.run(SPILL_MESSAGES / scale);
    print("spill.messages", (double) outcome.messages());
    print("spill.wrong", (double) outcome.wrong());
    print("spill.spilled", (double) outcome.spilled());
  }
}
