package io.fairlead.comm;

import io.fairlead.comm.spi.Segments;
import java.lang.foreign.MemorySegment;

/** The collectives that move bytes as they are. */
final class Exchanges {
  private Exchanges() {}

  /** From one rank to all, along a binomial tree whose root is turned to rank 0. */
  static final class Broadcast extends Collective {
    private final int root;
    private final MemorySegment data;
    private final int place;
    private int step;

    Broadcast(CommEngine engine, int channel, int sequence, int root, MemorySegment data) {
      super(engine, channel, sequence, "broadcast of " + data.byteSize() + " bytes from " + root);
      this.root = root;
      this.data = data;
      this.place = (rank - root + size) % size;
      this.step = place == 0 ? 1 : 0;
    }

    @Override
    void round() {
      switch (step++) {
        case 0 -> receive(at(Binomial.parent(place)), data);
        case 1 -> sendOn();
        default -> done();
      }
    }

    private void sendOn() {
      int[] children = Binomial.children(place, size);
      if (children.length == 0) {
        done();
      }
      for (int child : children) {
        send(at(child), data);
      }
    }

    private int at(int turned) {
      return (turned + root) % size;
    }
  }

  /** From all ranks to one: their blocks side by side, in rank order. */
  static final class Gather extends Collective {
    private final int root;
    private final MemorySegment mine;
    private final MemorySegment all;
    private boolean begun;

    Gather(
        CommEngine engine,
        int channel,
        int sequence,
        int root,
        MemorySegment mine,
        MemorySegment all) {
      super(engine, channel, sequence, "gather of " + mine.byteSize() + " bytes to " + root);
      this.root = root;
      this.mine = mine;
      this.all = all;
    }

    @Override
    void round() {
      if (begun) {
        done();
        return;
      }
      begun = true;
      if (rank != root) {
        send(root, mine);
        return;
      }
      block(all, rank, mine).copyFrom(mine);
      if (size == 1) {
        done();
      }
      for (int distance = 1; distance < size; distance++) {
        int source = (rank + distance) % size;
        receive(source, block(all, source, mine));
      }
    }
  }

  /** From all ranks to all: every rank sends its block to each other. */
  static final class AllGather extends Collective {
    private final MemorySegment mine;
    private final MemorySegment all;
    private boolean begun;

    AllGather(CommEngine engine, int channel, int sequence, MemorySegment mine, MemorySegment all) {
      super(engine, channel, sequence, "all-gather of " + mine.byteSize() + " bytes");
      this.mine = mine;
      this.all = all;
    }

    @Override
    void round() {
      if (begun) {
        done();
        return;
      }
      begun = true;
      block(all, rank, mine).copyFrom(mine);
      if (size == 1) {
        done();
      }
      for (int distance = 1; distance < size; distance++) {
        int source = (rank - distance + size) % size;
        receive(source, block(all, source, mine));
      }
      for (int distance = 1; distance < size; distance++) {
        send((rank + distance) % size, mine);
      }
    }
  }

  /** From all ranks to all: to each its own block. */
  static final class AllToAll extends Collective {
    private final MemorySegment[] to;
    private final MemorySegment[] from;
    private boolean begun;

    AllToAll(
        CommEngine engine, int channel, int sequence, MemorySegment[] to, MemorySegment[] from) {
      super(engine, channel, sequence, "all-to-all of " + Segments.bytes(to) + " bytes");
      this.to = to;
      this.from = from;
    }

    @Override
    void round() {
      if (begun) {
        done();
        return;
      }
      begun = true;
      from[rank].copyFrom(to[rank]);
      if (size == 1) {
        done();
      }
      for (int distance = 1; distance < size; distance++) {
        int source = (rank - distance + size) % size;
        receive(source, from[source]);
      }
      for (int distance = 1; distance < size; distance++) {
        int target = (rank + distance) % size;
        send(target, to[target]);
      }
    }
  }

  private static MemorySegment block(MemorySegment all, int rank, MemorySegment mine) {
    return all.asSlice(rank * mine.byteSize(), mine.byteSize());
  }
}
