package io.fairlead.solver.internal.device;

import io.fairlead.comm.Comm;
import io.fairlead.device.HostBlock;
import io.fairlead.memory.DeviceBuffer;
import io.fairlead.solver.internal.RowPartition;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Moves vector entries between the ranks of one solve. Confined to the rank's task; every rank
 * makes the same calls in the same order.
 *
 * <p>One exchange: post the receives; pack what goes out and copy it down; wait for the device;
 * send; wait for what comes in; copy it up. The copy up is not waited for, the stream orders it.
 *
 * <p>There are two sets of pinned blocks, used in turn. A set is free again two exchanges later:
 * its copy up came before the copy down that the exchange in between waited for, and its sends are
 * waited for then.
 */
final class Exchange {
  private static final int GHOSTS = 1;
  private static final int GATHER = 2;

  private final RankPart part;
  private final @Nullable Comm comm;
  private final Phases phases;
  private final DeviceBuffer pack;
  private final List<Set> sets = new ArrayList<>();
  private final @Nullable HostBlock gathered;
  private int turn;

  /** The pinned blocks of one exchange, and its sends. */
  private static final class Set {
    final HostBlock out;
    final HostBlock in;
    final List<Completion<Void>> sends = new ArrayList<>();

    Set(HostBlock out, HostBlock in) {
      this.out = out;
      this.in = in;
    }
  }

  Exchange(
      RankPart part,
      Vectors<DeviceBuffer> vectors,
      @Nullable Comm comm,
      PinnedBlocks pinned,
      Phases phases) {
    this.part = part;
    this.comm = comm;
    this.phases = phases;
    this.pack = vectors.pack();
    RowPartition gathers = part.gathered();
    if (part.ranks() > 1) {
      int mine = gathers == null ? 0 : gathers.size(part.rank());
      long out = 8L * Math.max(Vectors.mostSends(part), mine);
      long in = 8L * Vectors.mostGhosts(part);
      sets.add(new Set(pinned.take(out), pinned.take(in)));
      sets.add(new Set(pinned.take(out), pinned.take(in)));
    }
    gathered = gathers == null ? null : pinned.take(8L * gathers.rows());
  }

  /** Fills the ghosts of a vector that {@code matrix} is about to be multiplied with. */
  void ghosts(DeviceBuffer vector, MatrixPart matrix) {
    Halo halo = matrix.halo();
    if (halo.isEmpty()) {
      return;
    }
    Comm ranks = Objects.requireNonNull(comm, "several ranks without a communicator");
    Set set = nextSet();
    List<Completion<?>> arriving = receive(ranks, halo, set);
    send(ranks, halo, vector, set);
    for (Completion<?> arrival : arriving) {
      phases.message(arrival);
    }
    if (halo.ghosts() > 0) {
      long bytes = 8L * halo.ghosts();
      vector.slice(8L * halo.owned(), bytes).uploadFrom(set.in, bytes);
    }
  }

  private Set nextSet() {
    Set set = sets.get(turn & 1);
    turn++;
    for (Completion<Void> sent : set.sends) {
      phases.message(sent);
    }
    set.sends.clear();
    return set;
  }

  private static List<Completion<?>> receive(Comm comm, Halo halo, Set set) {
    List<Completion<?>> arriving = new ArrayList<>(halo.receiveRanks().length);
    for (int n = 0; n < halo.receiveRanks().length; n++) {
      MemorySegment into = doubles(set.in, halo.receivePtr()[n], halo.receivePtr()[n + 1]);
      arriving.add(comm.receive(halo.receiveRanks()[n], GHOSTS, into));
    }
    return arriving;
  }

  private void send(Comm comm, Halo halo, DeviceBuffer vector, Set set) {
    DeviceBuffer index = halo.sendIndex();
    if (index == null) {
      return;
    }
    DeviceBuffer packed = pack.slice(0, 8L * halo.sends());
    SolverKernels kernels = part.kernels();
    kernels.pack.launch(kernels.grids.gathered(halo.sends()), index, vector, packed);
    phases.device(packed.downloadTo(set.out));
    for (int n = 0; n < halo.sendRanks().length; n++) {
      MemorySegment from = doubles(set.out, halo.sendPtr()[n], halo.sendPtr()[n + 1]);
      set.sends.add(comm.send(halo.sendRanks()[n], GHOSTS, from));
      phases.sent();
    }
  }

  private static MemorySegment doubles(HostBlock block, int from, int end) {
    return block.segment().asSlice(8L * from, 8L * (end - from));
  }

  /** Sets {@code whole} on every rank to the blocks of all ranks. */
  void gather(DeviceBuffer mine, DeviceBuffer whole) {
    RowPartition rows = Objects.requireNonNull(part.gathered(), "nothing is gathered here");
    HostBlock all = Objects.requireNonNull(gathered, "nothing is gathered here");
    Comm ranks = Objects.requireNonNull(comm, "several ranks without a communicator");
    Set set = nextSet();
    List<Completion<?>> arriving = receiveBlocks(ranks, rows, all);
    sendBlock(ranks, rows, mine, set, all);
    for (Completion<?> arrival : arriving) {
      phases.message(arrival);
    }
    whole.uploadFrom(all, 8L * rows.rows());
  }

  private List<Completion<?>> receiveBlocks(Comm comm, RowPartition rows, HostBlock all) {
    List<Completion<?>> arriving = new ArrayList<>(part.ranks());
    for (int peer = 0; peer < part.ranks(); peer++) {
      if (peer != part.rank() && rows.size(peer) > 0) {
        arriving.add(comm.receive(peer, GATHER, doubles(all, rows.first(peer), rows.end(peer))));
      }
    }
    return arriving;
  }

  private void sendBlock(Comm comm, RowPartition rows, DeviceBuffer mine, Set set, HostBlock all) {
    int count = rows.size(part.rank());
    if (count == 0) {
      return;
    }
    phases.device(mine.downloadTo(set.out));
    MemorySegment block = doubles(set.out, 0, count);
    doubles(all, rows.first(part.rank()), rows.end(part.rank())).copyFrom(block);
    for (int peer = 0; peer < part.ranks(); peer++) {
      if (peer != part.rank()) {
        set.sends.add(comm.send(peer, GATHER, block));
        phases.sent();
      }
    }
  }

  /** Waits for sends that are still under way: no message of this solve is in flight afterwards. */
  void finish() {
    for (Set set : sets) {
      for (Completion<Void> sent : set.sends) {
        phases.message(sent);
      }
      set.sends.clear();
    }
  }
}
