package io.fairlead.host;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.host.pool.Block;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/** The operations that move no data: order, signals, and the lives of blocks and streams. */
final class StreamOperations {
  private StreamOperations() {}

  /** What an empty queue begins with; never run. */
  static final class Start extends Operation {
    @Override
    DriverCall call() {
      return DriverCall.STREAM_CREATE;
    }

    @Override
    String describe() {
      return "start of the stream";
    }

    @Override
    boolean run(HostStream stream, @Nullable Worker worker) {
      return true;
    }
  }

  /** Later work waits for a record of another stream. */
  static final class Wait extends Operation {
    private final EventRecord record;

    Wait(EventRecord record) {
      this.record = record;
    }

    /** Whether the stream can go on now. Nothing of an ending context waits for others. */
    boolean isOver(HostStream stream) {
      HostContext context = stream.context();
      return record.isDone() || (context.isEnding() && record.stream.context() != context);
    }

    @Override
    boolean run(HostStream stream, @Nullable Worker worker) {
      if (worker == null || isOver(stream)) {
        return true;
      }
      // Blocked first: once it is told, the record's owner may give the stream to another worker.
      // So this one must not own it again except through the ready queue, whatever it finds now.
      stream.blocked();
      if (!record.tell(stream) || stream.context().isLost() || isOver(stream)) {
        stream.stopWaiting();
      }
      return false;
    }

    @Override
    DriverCall call() {
      return DriverCall.STREAM_WAIT_EVENT;
    }

    @Override
    String describe() {
      return "wait for an event of stream " + Status.hex(record.stream.handle());
    }
  }

  /** Raises the stream's reached value. */
  static final class Signal extends Operation {
    private final long value;

    Signal(long value) {
      this.value = value;
    }

    @Override
    boolean run(HostStream stream, @Nullable Worker worker) {
      stream.signal(value);
      return true;
    }

    @Override
    DriverCall call() {
      return DriverCall.SIGNAL;
    }

    @Override
    String describe() {
      return "signal " + value;
    }
  }

  /** Somebody blocks until the stream gets here. */
  static final class Synchronize extends Operation {
    /** A lost context or driver is noticed at the latest after that long. */
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(10);

    private final Thread waiting = Thread.currentThread();

    /** Written by the owner, read by the waiting thread. */
    private volatile boolean done;

    /**
     * Looks for {@code spinNanos}, then parks. A virtual thread only looks: parking would take it
     * off its carrier, and a caller may have made a context current on that one.
     */
    void await(HostStream stream, long spinNanos) {
      boolean interrupted = false;
      long start = System.nanoTime();
      while (!done && !stream.context().isLost()) {
        if (waiting.isVirtual() || System.nanoTime() - start < spinNanos) {
          Thread.onSpinWait();
        } else {
          LockSupport.parkNanos(this, LOOK_NANOS);
          interrupted |= Thread.interrupted(); // a device is not interrupted; told at the end
        }
      }
      if (interrupted) {
        waiting.interrupt();
      }
    }

    @Override
    boolean run(HostStream stream, @Nullable Worker worker) {
      done = true;
      LockSupport.unpark(waiting);
      return true;
    }

    @Override
    void abandon(HostStream stream) {
      run(stream, null);
    }

    @Override
    DriverCall call() {
      return DriverCall.STREAM_SYNCHRONIZE;
    }

    @Override
    String describe() {
      return "let a synchronising thread go on";
    }
  }

  /** From here on the block may be used. */
  static final class Allocation extends Operation {
    private final Block block;

    Allocation(Block block) {
      this.block = block;
    }

    @Override
    boolean run(HostStream stream, @Nullable Worker worker) {
      block.allocationRan();
      return true;
    }

    @Override
    DriverCall call() {
      return DriverCall.ALLOC_ASYNC;
    }

    @Override
    String describe() {
      return "allocate " + block.bytes() + " bytes at " + Status.hex(block.address());
    }
  }

  /** From here on the block may not be used, and everybody may have its room. */
  static final class Free extends Operation {
    private static final byte POISON = (byte) 0xDB;

    private final Block block;

    Free(Block block) {
      this.block = block;
    }

    @Override
    boolean run(HostStream stream, @Nullable Worker worker) {
      if (!block.endLife()) {
        throw Status.fatal(
            DriverException.ILLEGAL_ADDRESS,
            "block "
                + Status.hex(block.address())
                + " was freed before its allocation was reached; order the streams with an event",
            null);
      }
      if (stream.device.isPoisoning()) {
        block.memory().fill(POISON);
      }
      stream.context().pool.freeRan(block);
      return true;
    }

    @Override
    DriverCall call() {
      return DriverCall.FREE_ASYNC;
    }

    @Override
    String describe() {
      return "free " + block.bytes() + " bytes at " + Status.hex(block.address());
    }
  }

  /** The last operation of a destroyed stream: its entry can go. */
  static final class Destroy extends Operation {
    private final HandleTable handles;

    Destroy(HandleTable handles) {
      this.handles = handles;
    }

    @Override
    boolean run(HostStream stream, @Nullable Worker worker) {
      handles.remove(stream);
      return true;
    }

    @Override
    void abandon(HostStream stream) {
      handles.remove(stream);
    }

    @Override
    DriverCall call() {
      return DriverCall.STREAM_DESTROY;
    }

    @Override
    String describe() {
      return "end of the stream";
    }
  }
}
