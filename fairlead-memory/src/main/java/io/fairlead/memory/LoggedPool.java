package io.fairlead.memory;

import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.task.Completion;
import java.lang.System.Logger.Level;
import java.util.concurrent.atomic.LongAccumulator;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Counts what is asked of a pool, and writes it to the log. Lock-free. */
final class LoggedPool extends ForwardingPool {
  private static final System.Logger LOG = System.getLogger(Pool.class.getName());

  private final String device;
  private final boolean isEach;
  private final LongAdder atOnce = new LongAdder();
  private final LongAdder unfinished = new LongAdder();
  private final LongAdder allocated = new LongAdder();
  private final LongAdder refused = new LongAdder();
  private final LongAdder given = new LongAdder();
  private final LongAdder bytes = new LongAdder();
  private final LongAccumulator largest = new LongAccumulator(Math::max, 0);

  /** Requests by the power of two above their size. */
  private final LongAdder[] sizes =
      IntStream.range(0, Long.SIZE).mapToObj(_ -> new LongAdder()).toArray(LongAdder[]::new);

  /**
   * @param device for the messages
   * @param isEach whether every request is written, too
   */
  LoggedPool(Pool inner, String device, boolean isEach) {
    super(inner);
    this.device = device;
    this.isEach = isEach;
  }

  @Override
  public @Nullable Block reuse(DeviceStream stream, Account account, long bytes) {
    try {
      return handedOut("at once", atOnce, stream, super.reuse(stream, account, bytes), bytes);
    } catch (DeviceException failure) {
      throw noted(failure, bytes);
    }
  }

  @Override
  public @Nullable Block reuseUnfinished(DeviceStream stream, Account account, long bytes) {
    Block block = super.reuseUnfinished(stream, account, bytes);
    return handedOut("before its last use ended", unfinished, stream, block, bytes);
  }

  @Override
  public Block allocate(DeviceStream stream, long bytes, Charge charge) {
    try {
      Block block = super.allocate(stream, bytes, charge);
      handedOut("from the pool or the driver", allocated, stream, block, charge.bytes);
      return block;
    } catch (DeviceException failure) {
      throw noted(failure, bytes);
    }
  }

  private @Nullable Block handedOut(
      String how, LongAdder count, DeviceStream stream, @Nullable Block block, long requested) {
    if (block != null) {
      count.increment();
      bytes.add(requested);
      largest.accumulate(requested);
      sizes[Long.SIZE - Long.numberOfLeadingZeros(Math.max(1, requested - 1))].increment();
      if (isEach) {
        log(
            Sizes.text(requested)
                + " at 0x"
                + Long.toHexString(block.address())
                + " for "
                + stream
                + " and task '"
                + block.charge().account.task
                + "', "
                + how);
      }
    }
    return block;
  }

  private DeviceException noted(DeviceException failure, long requested) {
    refused.increment();
    if (isEach) {
      log(Sizes.text(requested) + " refused: " + failure.getMessage());
    }
    return failure;
  }

  @Override
  public boolean giveBack(Storage storage, Charge charge) {
    boolean done = super.giveBack(storage, charge);
    if (done) {
      given.increment();
      if (isEach) {
        log(
            Sizes.text(charge.bytes)
                + " at 0x"
                + Long.toHexString(storage.address)
                + " given back");
      }
    }
    return done;
  }

  @Override
  public Completion<@Nullable Void> trim(long bytes) {
    log("trimmed; " + summary());
    return super.trim(bytes);
  }

  @Override
  public void close() {
    log("closed; " + summary());
    super.close();
  }

  String summary() {
    StringBuilder text = new StringBuilder(256);
    text.append(atOnce.sum() + unfinished.sum() + allocated.sum())
        .append(" buffers of ")
        .append(Sizes.text(bytes.sum()))
        .append(" in all, the largest of ")
        .append(Sizes.text(largest.get()))
        .append("; ")
        .append(atOnce.sum())
        .append(" had their memory at once, ")
        .append(unfinished.sum())
        .append(" before its last use ended, ")
        .append(allocated.sum())
        .append(" after a charge, ")
        .append(refused.sum())
        .append(" were refused; ")
        .append(given.sum())
        .append(" were given back; ")
        .append(Sizes.text(cached()))
        .append(" kept; by size:");
    for (int i = 0; i < sizes.length; i++) {
      long count = sizes[i].sum();
      if (count > 0) {
        text.append(" up to ").append(Sizes.text(1L << i)).append(' ').append(count).append(',');
      }
    }
    text.setLength(text.length() - 1);
    return text.toString();
  }

  private void log(String what) {
    LOG.log(Level.INFO, device + ": memory pool: " + what);
  }
}
