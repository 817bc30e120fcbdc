package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.fairlead.ffi.posix.NamelessFile;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/**
 * One of two ranks of {@link DoorbellTest}, which may be a process of its own. Behind the words of
 * the doorbell stands a number for each rank, which is what they send to each other in place of
 * MPI's packets.
 */
final class DoorbellRank implements AutoCloseable {
  private static final long MARK = 0xD00_BE11L;
  private static final long MAIL_AT = Doorbell.bytes(2);
  private static final int MAIL_BYTES = 128;
  private static final VarHandle MAIL = JAVA_INT.varHandle();

  private final MemorySegment memory;
  private final int rank;
  private final Doorbell bell;
  private final Thread self = Thread.currentThread();

  DoorbellRank(MemorySegment memory, int rank) {
    this.memory = memory;
    this.rank = rank;
    this.bell = new Doorbell(memory, rank, 2);
  }

  static long bytes() {
    return MAIL_AT + 2 * MAIL_BYTES;
  }

  public static void main(String[] arguments) throws IOException {
    switch (arguments[0]) {
      case "make" -> {
        NamelessFile made = NamelessFile.create(bytes(), MARK);
        System.out.println(made.number());
        System.out.flush();
        LockSupport.park();
      }
      case "sleep" -> {
        DoorbellRank rank = found(arguments);
        rank.bell.announce(() -> {});
        System.out.println("asleep");
        System.out.flush();
        LockSupport.park();
      }
      case "exchange" -> {
        DoorbellRank rank = found(arguments);
        rank.exchange(Integer.parseInt(arguments[3]), Long.parseLong(arguments[4]));
        rank.close();
      }
      default -> throw new AssertionError(arguments[0]);
    }
  }

  private static DoorbellRank found(String[] arguments) throws IOException {
    long process = Long.parseLong(arguments[1]);
    int number = Integer.parseInt(arguments[2]);
    return new DoorbellRank(NamelessFile.open(process, number, bytes(), MARK), 1);
  }

  /**
   * Sends numbers to the other rank, and awaits the same ones.
   *
   * @return in how many rounds it slept
   */
  int exchange(int rounds, long seed) {
    Random random = new Random(seed);
    int slept = 0;
    for (int round = 1; round <= rounds; round++) {
      pause(random);
      MAIL.setRelease(memory, at(1 - rank), round); // as a library would: no fence behind
      bell.sent(1 - rank);
      pause(random);
      slept += await(round) ? 1 : 0;
    }
    return slept;
  }

  /** Sleeps until the number is there, with nothing else to wake it; whether it slept. */
  private boolean await(int round) {
    boolean slept = false;
    while ((int) MAIL.getAcquire(memory, at(rank)) < round) {
      bell.announce(() -> LockSupport.unpark(self));
      if ((int) MAIL.getAcquire(memory, at(rank)) >= round) {
        break;
      }
      while (bell.isAsleep()) {
        slept = true;
        LockSupport.park(this);
        if (Thread.interrupted()) {
          throw new AssertionError("not woken in round " + round); // the time of the test is over
        }
      }
    }
    bell.withdraw();
    return slept;
  }

  private static long at(int rank) {
    return MAIL_AT + (long) rank * MAIL_BYTES;
  }

  private static void pause(Random random) {
    int kind = random.nextInt(8);
    if (kind == 0) {
      LockSupport.parkNanos(random.nextInt(200_000));
    } else {
      for (int i = random.nextInt(1 << (kind + 2)); i > 0; i--) {
        Thread.onSpinWait();
      }
    }
  }

  @Override
  public void close() {
    bell.close();
  }
}
