package io.fairlead.cli.bench;

import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The process in which {@link TaskSuite} measures one group of rows; not for users. */
@Command(name = "tasks-worker", hidden = true)
public final class TaskWorker implements Callable<Integer> {
  /** How long a waker computes on where it does not park. */
  private static final long BUSY_NANOS = 20_000;

  /** Long enough for an owner to have parked, and its core to have gone to sleep. */
  private static final long REST_NANOS = 2_000_000;

  private static final int MILLION = 1_000_000;

  /** What is measured together. */
  enum Group {
    /** Forks: on one core and on two. */
    FORKS,
    /** Only the recursion of {@link #FORKS}: on any number of cores. */
    RECURSION,
    /** Wakes: on any number of cores. */
    NOTIFY,
    /** Ping-pong alone: own carriers and the JDK's take turns as processes. */
    PING_PONG,
    /** Forks of tasks that suspend. */
    SUSPENDING,
    /** Owners that were busy, and owners that slept. */
    OWNERS,
    /** Wakes while all carriers are busy, or calls block. */
    BUSY,
    /** A million parked tasks. */
    MILLION
  }

  @CommandLine.Spec private @Nullable CommandSpec spec;

  @Parameters(index = "0")
  private Group group = Group.NOTIFY;

  @Option(names = "--quick")
  private boolean quick;

  /** Made by the command line parser. */
  public TaskWorker() {}

  @Override
  public Integer call() {
    int threadsBefore = ManagementFactory.getThreadMXBean().getThreadCount();
    try (Fairlead fairlead = Fairlead.open(FairleadConfig.fromSystem().withDevice("host"))) {
      WakeProbes probes = new WakeProbes(fairlead, quick);
      switch (group) {
        case FORKS -> probes.inTask(() -> forks(new ForkProbes(fairlead, quick)));
        case RECURSION -> probes.inTask(() -> recursion(new ForkProbes(fairlead, quick)));
        case NOTIFY -> notifying(probes);
        case PING_PONG -> print("pingpong", probes.pingPong());
        case SUSPENDING -> suspending(probes);
        case OWNERS -> owners(probes);
        case BUSY -> busy(probes, new ForkProbes(fairlead, quick));
        case MILLION -> million(probes, threadsBefore);
      }
    }
    return 0;
  }

  /** As many pairs as that: one, one for each core, and four for each. */
  private void notifying(WakeProbes probes) {
    int cores = Runtime.getRuntime().availableProcessors();
    print("notify.1", probes.notifying(1, 0));
    print("notify." + cores, probes.notifying(cores, 0));
    print("notify." + 4 * cores, probes.notifying(4 * cores, 0));
    print("notify.busy", probes.notifying(1, BUSY_NANOS));
  }

  private void suspending(WakeProbes probes) {
    threads("spawn_block", probes.spawnAndBlock());
    threads("parked1000", probes.manyParked());
  }

  private void owners(WakeProbes probes) {
    print("affine", probes.affine());
    print("shifted.hot", probes.shifted(0));
    print("shifted.slept", probes.shifted(REST_NANOS));
    print("wake.slept", probes.threadWakes(REST_NANOS));
  }

  private void busy(WakeProbes probes, ForkProbes forks) {
    besideBusy("busy.forking", probes, forks::compute);
    besideBusy("busy.loops", probes, () -> WakeProbes.compute(1_000_000));
    print("blocked64", probes.besideBlockedCalls(64));
  }

  private void besideBusy(String name, WakeProbes probes, Runnable busy) {
    print(name, probes.whileBusy(busy));
    print(name + ".thread", probes.threadWhileBusy(busy));
  }

  private void recursion(ForkProbes probes) {
    double[][] recursion = probes.recursion();
    print("pfib.serial", recursion[0]);
    print("pfib.frames", recursion[1]);
    print("pfib.pool", recursion[2]);
  }

  private void forks(ForkProbes probes) {
    recursion(probes);
    print("pfib.bytes", probes.garbage());
    pair("fine", probes.fine());
    double[][] scopes = probes.scopeForks();
    print("scope.nanos", scopes[0]);
    print("scope.bytes", scopes[1]);
  }

  private void million(WakeProbes probes, int threadsBefore) {
    int count = quick ? MILLION / 10 : MILLION;
    double[] bytesAndThreads = probes.parked(count);
    print("million.bytes", bytesAndThreads[0]);
    print("million.threads", bytesAndThreads[1] - threadsBefore);
  }

  private void pair(String name, double[][] oursAndTheirs) {
    print(name + ".ours", oursAndTheirs[0]);
    print(name + ".theirs", oursAndTheirs[1]);
  }

  private void threads(String name, double[][] oursTheirsInherited) {
    pair(name, oursTheirsInherited);
    print(name + ".inherited", oursTheirsInherited[2]);
  }

  private void print(String name, double... samples) {
    PrintWriter out = Objects.requireNonNull(spec).commandLine().getOut();
    out.println(SampleLine.text(name, samples));
    out.flush();
  }
}
