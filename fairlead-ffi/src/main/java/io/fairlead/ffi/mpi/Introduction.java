package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import io.fairlead.fault.Mutant;
import io.fairlead.ffi.mpi.PeerWatch.ProcessId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The first thing that ranks say to each other: a communicator of their own, and who each one is.
 * Ranks that would not understand each other are found here, before a message could be misread.
 *
 * <pre>
 * COPYING      the communicator is duplicated; messages of others never meet ours
 *   → MEETING  every rank's card goes to every rank
 *   → FITTING  the cards fit; those on one host fit a doorbell
 *   → DONE
 * </pre>
 *
 * Each step is a call that does not block, tried again until it is done or the time is up: a rank
 * that never comes is an error here, and not a hang.
 */
final class Introduction {
  /** Raised whenever what ranks say to each other over a wire of MPI changes. */
  static final int PROTOCOL = 3;

  /** For all ranks to get here, in seconds. */
  static final String SECONDS_PROPERTY = "fairlead.mpi.startSeconds";

  private static final int SECONDS_DEFAULT = 60;
  private static final long NAP_NANOS = 200_000;

  /** Says "Fairlead"; a peer of another program says something else. */
  private static final long MAGIC = 0x4661_6972_6c65_6164L;

  private static final int MAGIC_AT = 0;
  private static final int PROTOCOL_AT = 8;
  private static final int LENGTH_AT = 12;
  private static final int HOST_AT = 16;
  private static final int PID_AT = 24;
  private static final int START_AT = 32;
  private static final int TEXT_AT = 64;
  private static final int CARD_BYTES = 256;
  private static final int TEXT_BYTES_MAX = CARD_BYTES - TEXT_AT;

  private final MpiLibrary library;
  private final long deadline;
  private final int seconds;

  private Introduction(MpiLibrary library) {
    this.library = library;
    this.seconds = Integer.getInteger(SECONDS_PROPERTY, SECONDS_DEFAULT);
    this.deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
  }

  /**
   * What ranks agreed on.
   *
   * @param comm a communicator of ours
   * @param processes who each rank is
   * @param doorbell null: there is none, on no rank
   */
  record Agreed(
      long comm, int rank, int size, List<ProcessId> processes, @Nullable Doorbell doorbell) {}

  /**
   * Meets the other ranks of a communicator, all of which do the same. Waits for them.
   *
   * @throws io.fairlead.comm.spi.TransportException LIBRARY: one did not come in time, or does not
   *     fit; which, and how to mend it
   */
  static Agreed meet(MpiProcess process, long parent) {
    Introduction introduction = new Introduction(process.library);
    long comm = introduction.duplicate(parent);
    int rank = MpiProcess.number(process.library, "MPI_Comm_rank", to -> rank(process, comm, to));
    int size = MpiProcess.number(process.library, "MPI_Comm_size", to -> size(process, comm, to));
    List<ProcessId> processes = introduction.exchange(comm, rank, size);
    Doorbell doorbell =
        DoorbellFitting.fit(mine -> introduction.gather(comm, size, mine), processes, rank);
    return new Agreed(comm, rank, size, processes, doorbell);
  }

  private static int rank(MpiProcess process, long comm, long to) {
    return process.library.api.commRank(comm, to);
  }

  private static int size(MpiProcess process, long comm, long to) {
    return process.library.api.commSize(comm, to);
  }

  private long duplicate(long parent) {
    // Of the garbage collector: MPI writes the handle when the request is done, whatever we do.
    MemorySegment answer = Arena.ofAuto().allocate(Long.BYTES, Long.BYTES);
    MemorySegment request = Arena.ofAuto().allocate(Long.BYTES, Long.BYTES);
    library.check(
        "MPI_Comm_idup", library.api.commIdup(parent, answer.address(), request.address()));
    await(request, "MPI_Comm_idup");
    long comm = library.flavour.handle(answer, 0);
    library.check(
        "MPI_Comm_set_errhandler", library.api.commSetErrhandler(comm, library.errorsReturn));
    return comm;
  }

  private List<ProcessId> exchange(long comm, int rank, int size) {
    MemorySegment mine = card(rank);
    MemorySegment all = gather(comm, size, mine);
    List<ProcessId> processes = new ArrayList<>(size);
    for (int peer = 0; peer < size; peer++) {
      MemorySegment card = all.asSlice((long) peer * CARD_BYTES, CARD_BYTES);
      requireSame(rank, text(mine), peer, card);
      processes.add(
          new ProcessId(
              card.get(JAVA_LONG, HOST_AT),
              card.get(JAVA_LONG, PID_AT),
              card.get(JAVA_LONG, START_AT)));
    }
    return List.copyOf(processes);
  }

  /** Everybody's, one after the other, each as long as {@code mine}. */
  private MemorySegment gather(long comm, int size, MemorySegment mine) {
    int bytes = (int) mine.byteSize();
    MemorySegment all = Arena.ofAuto().allocate((long) size * bytes, Long.BYTES);
    MemorySegment request = Arena.ofAuto().allocate(Long.BYTES, Long.BYTES);
    try {
      library.check(
          "MPI_Iallgather",
          library.api.iallgather(
              mine.address(),
              bytes,
              library.bytes,
              all.address(),
              bytes,
              library.bytes,
              comm,
              request.address()));
      await(request, "MPI_Iallgather");
    } finally {
      Reference.reachabilityFence(mine); // MPI reads it until then
    }
    return all;
  }

  private MemorySegment card(int rank) {
    ProcessId self = ProcessId.current();
    byte[] text = ownText(rank).getBytes(StandardCharsets.UTF_8);
    int length = Math.min(text.length, TEXT_BYTES_MAX);
    MemorySegment card = Arena.ofAuto().allocate(CARD_BYTES, Long.BYTES);
    card.set(JAVA_LONG, MAGIC_AT, MAGIC);
    card.set(JAVA_INT, PROTOCOL_AT, PROTOCOL);
    card.set(JAVA_INT, LENGTH_AT, length);
    card.set(JAVA_LONG, HOST_AT, self.host());
    card.set(JAVA_LONG, PID_AT, self.pid());
    card.set(JAVA_LONG, START_AT, self.start());
    card.asSlice(TEXT_AT, length).copyFrom(MemorySegment.ofArray(Arrays.copyOf(text, length)));
    return card;
  }

  private String ownText(int rank) {
    String other = Mutant.on("mpi.version") && rank > 0 ? " (altered)" : "";
    return library.version + other;
  }

  private static String text(MemorySegment card) {
    int length = Math.clamp(card.get(JAVA_INT, LENGTH_AT), 0, TEXT_BYTES_MAX);
    byte[] text = card.asSlice(TEXT_AT, length).toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
    return new String(text, StandardCharsets.UTF_8);
  }

  private static void requireSame(int rank, String mine, int peer, MemorySegment card) {
    if (card.get(JAVA_LONG, MAGIC_AT) != MAGIC) {
      throw MpiLibrary.refused(
          "rank " + peer + " is not a rank of Fairlead: start the same program on all ranks");
    }
    int protocol = card.get(JAVA_INT, PROTOCOL_AT);
    if (protocol != PROTOCOL) {
      throw MpiLibrary.refused(
          "rank "
              + peer
              + " speaks version "
              + protocol
              + " of the protocol between ranks, rank "
              + rank
              + " version "
              + PROTOCOL
              + ": start the same version of Fairlead on all ranks");
    }
    if (!text(card).equals(mine)) {
      throw MpiLibrary.refused(
          "rank "
              + peer
              + " runs "
              + text(card)
              + ", rank "
              + rank
              + " runs "
              + mine
              + ": use the same MPI library on all ranks");
    }
  }

  /** Tries a request until it is done; on its own thread, which has nothing else to do yet. */
  private void await(MemorySegment request, String call) {
    MemorySegment flag = Arena.ofAuto().allocate(JAVA_INT);
    while (true) {
      int status =
          library.api.test(request.address(), flag.address(), library.flavour.statusIgnore);
      library.check(call, status);
      if (flag.get(JAVA_INT, 0) != 0) {
        return;
      }
      if (System.nanoTime() - deadline > 0) {
        throw MpiLibrary.refused(
            "not all ranks came within "
                + seconds
                + " s: look whether one is still starting or has failed; -D"
                + SECONDS_PROPERTY
                + "=N waits longer");
      }
      LockSupport.parkNanos(NAP_NANOS);
    }
  }
}
