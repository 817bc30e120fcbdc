package io.fairlead.ffi.mpi;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fairlead.comm.Comm;
import io.fairlead.comm.CommConfig;
import io.fairlead.comm.CommException;
import io.fairlead.comm.ReduceOp;
import io.fairlead.comm.Termination;
import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import io.fairlead.comm.wire.Packet;
import io.fairlead.comm.wire.Transfer;
import io.fairlead.comm.wire.Wire;
import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Mutant;
import io.fairlead.sim.TerminationContract;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import io.fairlead.task.TaskScope;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Ranks in trouble, of which {@link MpiTroubleTest} starts two, saying which trouble. Each prints
 * what it found, and ends with 4 if something failed, as the command does.
 */
final class MpiTrouble {
  private static final int REST_ROUNDS = 400;
  private static final int REST_ROUNDS_MAX = 100_000;

  private MpiTrouble() {}

  public static void main(String[] arguments) throws Exception {
    int code = 0;
    try {
      switch (arguments[0]) {
        case "hello" -> hello();
        case "well" -> well();
        case "versions" -> versions();
        case "killed" -> killed();
        case "late" -> late();
        case "thread" -> thread();
        case "storm" -> storm(false);
        case "storm-without-door" -> storm(true);
        case "fails-and-stays" -> failsAndStays();
        case "one-gives-up" -> oneGivesUp();
        case "termination" -> termination();
        case "killed-at-work" -> killedAtWork();
        case "too-late" -> tooLate();
        case "rest" -> rest();
        case "rest-unrung" -> restUnrung();
        case "loops-rest" -> loopsRest();
        default -> throw new AssertionError(arguments[0]);
      }
    } catch (FairleadException e) {
      say(e.getMessage());
      code = 4;
    }
    System.exit(code);
  }

  /** One write, so that lines of ranks do not mix. */
  private static void say(@Nullable String text) {
    byte[] line = ("\n>> " + text + "\n").getBytes(UTF_8);
    System.out.write(line, 0, line.length);
    System.out.flush();
  }

  private static Comm world(TaskRuntime tasks) {
    TransportSettings settings = new TransportSettings(1, 1 << 20, 64);
    return Comm.open(tasks, () -> MpiTransports.open(settings), CommConfig.DEFAULT);
  }

  private static MemorySegment number(long value) {
    return MemorySegment.ofArray(new long[] {value});
  }

  /** Everybody sends to everybody. */
  private static void hello() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm = world(tasks)) {
      hello(comm);
    }
  }

  private static void hello(Comm comm) {
    double[] sum = {comm.rank() + 1};
    comm.allReduce(sum, ReduceOp.SUM).await();
    say("rank " + comm.rank() + " of " + comm.size() + " has the sum " + sum[0]);
  }

  /** What does not end the ranks, one after the other in one job, since a job takes its time. */
  private static void well() {
    MpiProcess process = MpiProcess.enter(); // so that MPI stays on from one to the next
    truncated();
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      Comm comm = world(tasks);
      hello(comm);
      arguments(comm);
      storm(tasks, comm, 300);
      comm.close();
      closed(comm);
    }
    process.leave();
  }

  /** What comes to a communicator whose library is left behind: nothing may enter it. */
  private static void closed(Comm comm) {
    answers("expose", () -> comm.expose(number(0)));
    answers("send", () -> comm.send(1, 1, number(0)));
    answers("receive", () -> comm.receive(Comm.ANY, 1));
    answers("message", () -> comm.message(1, 1, number(0)));
    answers("put", () -> comm.put(1, 1, 0, number(0)));
    answers("get", () -> comm.get(1, 1, 0, number(0)));
    answers("barrier", comm::barrier);
    answers("handle", () -> handle(comm));
    answers("duplicate", () -> Completion.completed(comm.duplicate()));
    answers("termination", () -> Completion.completed(comm.termination()));
    answers("lend", () -> Completion.completed(comm.lend(8)));
    answers("affine", () -> comm.affine(() -> "never"));
    comm.fail(new IllegalStateException("of no interest any more"));
    say("rank " + comm.rank() + " is closed");
  }

  private static Completion<?> handle(Comm comm) {
    comm.handle(7, (source, header, blobs) -> {});
    return Completion.completed(null);
  }

  private static void answers(String what, Supplier<Completion<?>> call) {
    try {
      call.get().await(Duration.ofSeconds(10));
      say(what + " was let in");
    } catch (IllegalStateException | CommException closed) {
      say(what + " closed: " + closed.getMessage());
    }
  }

  private static void versions() {
    try (Mutant.Handle _ = Mutant.enable("mpi.version")) {
      hello();
    }
  }

  /** Rank 1 dies of a signal while rank 0 waits for it. */
  private static void killed() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm = world(tasks)) {
      comm.barrier().await();
      if (comm.rank() == 1) {
        die();
      }
      comm.receive(1, 7, MemorySegment.ofArray(new long[1])).await();
    }
  }

  private static void die() {
    ProcessHandle self = ProcessHandle.current();
    try {
      new ProcessBuilder("kill", "-9", Long.toString(self.pid())).start().waitFor();
    } catch (IOException | InterruptedException e) {
      throw new AssertionError(e);
    }
    LockSupport.park();
  }

  /** Rank 1 does not meet rank 0 at the end. */
  private static void oneGivesUp() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT)) {
      Comm comm = world(tasks);
      hello(comm);
      Mutant.Handle givesUp = comm.rank() == 1 ? Mutant.enable("mpi.gives-up") : () -> {};
      comm.close();
      givesUp.close();
      say("rank " + comm.rank() + " is through");
    }
  }

  /** All rules of the detection of termination, twice each. */
  private static void termination() throws Exception {
    int kept = 0;
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm = world(tasks)) {
      for (int seed = 0; seed < 2; seed++) {
        for (TerminationContract rule : TerminationContract.values()) {
          try {
            rule.keep(tasks, comm, seed);
          } catch (AssertionError e) {
            comm.fail(e); // the other would wait for this one
            throw new AssertionError(rule + " is not kept on rank " + comm.rank(), e);
          }
          kept++;
        }
      }
      say("rank " + comm.rank() + " has kept " + kept + " rules");
    }
  }

  /** Rank 1 dies while rank 0 waits for the end of the work that rank 1 has. */
  private static void killedAtWork() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm = world(tasks)) {
      Termination work = comm.termination();
      work.handle(1, (source, header, blobs) -> die());
      work.begin();
      comm.barrier().await();
      if (comm.rank() == 0) {
        work.message(1, 1, number(0));
      }
      work.finish().await();
    }
  }

  /** Rank 1 does not come to meet the others. */
  private static void late() {
    MpiProcess process = MpiProcess.enter();
    int rank =
        MpiProcess.number(
            process.library,
            "MPI_Comm_rank",
            to -> process.library.api.commRank(process.library.world, to));
    if (rank == 0) {
      MpiTransports.open(new TransportSettings(1, 1 << 20, 64));
    } else {
      LockSupport.parkNanos(Duration.ofSeconds(30).toNanos());
    }
  }

  /** Rank 1 expects less than rank 0 sends; others on the same wire go on. */
  private static void truncated() {
    MpiProcess process = MpiProcess.enter();
    MpiWire wire = MpiWire.open(process, process.library.world);
    Ends ends = new Ends();
    try (Arena arena = Arena.ofShared()) {
      MemorySegment large = arena.allocate(3000);
      MemorySegment small = arena.allocate(1000);
      if (wire.rank() == 0) {
        wire.sendBulk(1, 3, large, ends.transfer("large"));
        wire.sendBulk(1, 4, large.asSlice(0, 8), ends.transfer("short"));
      } else {
        wire.receiveBulk(0, 3, small, ends.transfer("large"));
        wire.receiveBulk(0, 4, small, ends.transfer("short"));
      }
      ends.await(wire, 2);
      ends.found.stream().sorted().forEach(each -> say("rank " + wire.rank() + ": " + each));
      if (wire.rank() == 0) {
        send(wire, 1, 1);
      } else {
        ends.awaitPacket(wire);
        say("rank 1: a packet all the same");
      }
      wire.close();
    }
  }

  private static void send(Wire wire, int peer, long value) {
    Packet packet = Objects.requireNonNull(wire.take());
    packet.memory().set(ValueLayout.JAVA_LONG, 0, value);
    wire.send(peer, packet, 8);
  }

  private static final class Ends implements Wire.Listener {
    final List<String> found = new ArrayList<>();
    final List<Long> packets = new ArrayList<>();

    Transfer transfer(String name) {
      return new Transfer() {
        @Override
        public void done(long bytes) {
          found.add(name + " done, " + bytes + " bytes");
        }

        @Override
        public void failed(Throwable cause) {
          found.add(name + " failed: " + cause.getMessage());
        }
      };
    }

    void await(Wire wire, int count) {
      while (found.size() < count) {
        wire.poll(this);
      }
    }

    void awaitPacket(Wire wire) {
      while (packets.isEmpty()) {
        wire.poll(this);
      }
    }

    @Override
    public void packet(int source, MemorySegment memory, int bytes) {
      packets.add(memory.get(ValueLayout.JAVA_LONG, 0));
    }

    @Override
    public void lost(int peer, Throwable cause) {
      throw new AssertionError("lost " + peer, cause);
    }
  }

  /** Rank 0 sends a packet when rank 1 has closed its wire; then both open another one. */
  private static void tooLate() throws IOException {
    Path closed = Path.of(System.getProperty("fairlead.test.spoken"));
    MpiProcess process = MpiProcess.enter(); // so that MPI stays on
    MpiWire first = MpiWire.open(MpiProcess.enter(), process.library.world);
    if (first.rank() == 1) {
      first.close();
      Files.createFile(closed);
    } else {
      while (!Files.exists(closed)) {
        LockSupport.parkNanos(Duration.ofMillis(1).toNanos());
      }
      send(first, 1, 1);
      first.close();
    }
    MpiWire second = MpiWire.open(MpiProcess.enter(), process.library.world);
    Ends ends = new Ends();
    send(second, 1 - second.rank(), 2);
    ends.awaitPacket(second);
    MpiWire third = MpiWire.open(MpiProcess.enter(), process.library.world); // both have come
    for (int i = 0; i < 1_000; i++) {
      second.poll(ends);
    }
    say("rank " + second.rank() + " has packets " + ends.packets);
    third.close();
    second.close();
    process.leave();
  }

  /** Each sleeps until the other's packet has come, with nothing else to wake it. */
  private static void rest() {
    rest(Duration.ofSeconds(30));
  }

  private static void restUnrung() {
    try (Mutant.Handle _ = Mutant.enable("doorbell.never-rings")) {
      rest(Duration.ofSeconds(3));
    }
  }

  /**
   * Rank 0 goes on until both have slept: who answers at once may leave no time for it. It says by
   * a number below 0 that a round is the last, the other one that it has slept.
   */
  private static void rest(Duration patience) {
    MpiProcess process = MpiProcess.enter();
    MpiWire wire = MpiWire.open(process, process.library.world);
    Ends ends = new Ends();
    Sleep sleep = new Sleep(wire, ends, patience);
    boolean rung = true;
    boolean last = false;
    for (int round = 1; rung && !last; round++) {
      if (wire.rank() == 0) {
        boolean bothSlept = sleep.slept && !ends.packets.isEmpty() && ends.packets.getLast() < 0;
        last = round >= REST_ROUNDS_MAX || (round >= REST_ROUNDS && bothSlept);
        send(wire, 1, last ? -round : round);
        rung = sleep.until(round);
      } else {
        rung = sleep.until(round);
        last = rung && ends.packets.getLast() < 0;
        send(wire, 0, sleep.slept ? -round : round);
      }
    }
    say("rank " + wire.rank() + (rung ? " was rung, and slept: " + sleep.slept : " was not rung"));
    wire.close();
    process.leave();
  }

  /** Sleeps as a loop does, but for the end that each of its naps has. */
  private static final class Sleep {
    private final MpiWire wire;
    private final Ends ends;
    private final Duration patience;
    private final Thread self = Thread.currentThread();
    boolean slept;

    Sleep(MpiWire wire, Ends ends, Duration patience) {
      this.wire = wire;
      this.ends = ends;
      this.patience = patience;
    }

    /** False: nobody rang. */
    boolean until(int packets) {
      long deadline = System.nanoTime() + patience.toNanos();
      while (ends.packets.size() < packets) {
        boolean announced = wire.announceRest(() -> LockSupport.unpark(self));
        if (wire.poll(ends) == 0 && announced && wire.mayRest()) {
          slept = true;
          while (wire.isResting()) {
            LockSupport.parkNanos(deadline - System.nanoTime());
            if (System.nanoTime() - deadline > 0) {
              return false;
            }
          }
        }
      }
      wire.endRest();
      return true;
    }
  }

  /** Both loops rest, are rung by a message each, and rest again. */
  private static void loopsRest() {
    Transport[] opened = new Transport[1];
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm =
            Comm.open(
                tasks,
                () -> opened[0] = MpiTransports.open(new TransportSettings(1, 1 << 20, 64)),
                CommConfig.DEFAULT)) {
      for (int round = 0; round < 5; round++) {
        awaitRest(opened[0]);
        hello(comm);
        MemorySegment large = MemorySegment.ofArray(new byte[1 << 20]);
        Completion<?> receive =
            comm.receive(1 - comm.rank(), 3, MemorySegment.ofArray(new byte[1 << 20]));
        awaitRest(opened[0]); // a receive that waits needs no polls
        comm.send(1 - comm.rank(), 3, large).await();
        receive.await();
      }
      say("rank " + comm.rank() + " has rested");
    }
  }

  private static void awaitRest(Transport transport) {
    long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
    while (!transport.isResting()) {
      if (System.nanoTime() - deadline > 0) {
        throw new AssertionError("its loop does not come to rest: " + transport);
      }
      LockSupport.parkNanos(Duration.ofMillis(1).toNanos());
    }
  }

  /** A thread that is not the wire's enters it, at FUNNELED. */
  private static void thread() throws InterruptedException {
    MpiProcess process = MpiProcess.enter();
    MpiWire wire = MpiWire.open(process, process.library.world);
    Thread other =
        Thread.ofPlatform()
            .name("a-stranger")
            .start(
                () -> {
                  try {
                    send(wire, 0, 1);
                    say("it was let in");
                  } catch (IllegalStateException e) {
                    say(e.getMessage());
                  }
                });
    other.join();
    Ends ends = new Ends();
    send(wire, 1 - wire.rank(), 1);
    ends.awaitPacket(wire);
    wire.close();
    say("rank " + wire.rank() + " goes on");
  }

  /**
   * Many tasks send and receive at once. MPICH at FUNNELED and SERIALIZED ends the process if two
   * threads are inside: so if the engine lets in two, or the door is open and callers do as they
   * like, this does not end well.
   */
  private static void storm(boolean withoutDoor) {
    Mutant.Handle door = withoutDoor ? Mutant.enable("mpi.door") : () -> {};
    Mutant.Handle shift = withoutDoor ? Mutant.enable("comm.shift.skip") : () -> {};
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm = world(tasks)) {
      storm(tasks, comm, withoutDoor ? 20_000 : 300);
    } finally {
      door.close();
      shift.close();
    }
  }

  private static void storm(TaskRuntime tasks, Comm comm, int rounds) {
    int senders = 16;
    try (TaskScope<Long> scope = tasks.scope()) {
      for (int sender = 0; sender < senders; sender++) {
        int tag = sender;
        scope.fork(() -> exchange(comm, tag, rounds));
      }
      long sum = scope.join().stream().mapToLong(Long::longValue).sum();
      say("rank " + comm.rank() + " has received " + sum);
    }
  }

  private static long exchange(Comm comm, int tag, int rounds) {
    int peer = 1 - comm.rank();
    long received = 0;
    for (int round = 0; round < rounds; round++) {
      MemorySegment into = number(0);
      Completion<?> receive = comm.receive(peer, tag, into);
      comm.send(peer, tag, number(round)).await();
      receive.await();
      if (into.get(ValueLayout.JAVA_LONG, 0) == round) {
        received++;
      }
    }
    return received;
  }

  /** Rank 1 gives up; rank 0 learns why. */
  private static void fails() {
    try (TaskRuntime tasks = TaskRuntime.open(TaskConfig.DEFAULT);
        Comm comm = world(tasks)) {
      comm.barrier().await();
      if (comm.rank() == 1) {
        comm.fail(new IllegalStateException("the third wheel came off"));
        comm.barrier().await();
      }
      comm.receive(1, 7, MemorySegment.ofArray(new long[1])).await();
    }
  }

  /**
   * As {@link #fails}; but the rank that failed stays until the other has spoken and made a file,
   * so that the launcher does not end it before.
   */
  private static void failsAndStays() throws IOException {
    Path spoken = Path.of(System.getProperty("fairlead.test.spoken"));
    try {
      fails();
    } catch (CommException e) {
      say(e.getMessage());
      if (e.rank() == 0) {
        Files.createFile(spoken);
      }
    }
    long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
    while (!Files.exists(spoken) && System.nanoTime() < deadline) {
      LockSupport.parkNanos(Duration.ofMillis(10).toNanos());
    }
  }

  /** What callers get wrong. */
  private static void arguments(Comm comm) {
    refused(() -> comm.send(2, 0, number(1)));
    refused(() -> comm.send(-1, 0, number(1)));
    refused(() -> comm.send(0, -1, number(1)));
    int peer = 1 - comm.rank();
    Completion<?> small = comm.receive(peer, 1, MemorySegment.ofArray(new byte[4]));
    comm.send(peer, 1, number(5)).await();
    failed(small);
    Comm closed = comm.duplicate();
    closed.close();
    failed(closed.send(peer, 1, number(5)));
    comm.barrier().await();
    say("rank " + comm.rank() + " goes on");
  }

  private static void refused(Runnable call) {
    try {
      call.run();
      say("was not refused");
    } catch (IllegalArgumentException e) {
      say("refused: " + e.getMessage());
    }
  }

  private static void failed(Completion<?> completion) {
    try {
      completion.await();
      say("did not fail");
    } catch (CommException e) {
      say("failed: " + e.reason() + ": " + e.getMessage());
    }
  }
}
