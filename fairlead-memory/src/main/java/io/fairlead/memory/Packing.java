package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceException;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.Pieces;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Copies of many small images by one operation of a stream, and one signal: each by itself costs
 * more than its bytes take to move.
 *
 * <p>The table of such an operation is a block of the context's pool for staging, and goes back
 * once the operation has ended. Nobody waits for one: where none is free the images are copied one
 * by one.
 */
final class Packing {
  /** Images larger than that are worth an operation of their own. */
  static final long IMAGE_BYTES_MAX = 64 << 10;

  /** Images of one operation: small enough that the first of many packs soon begins. */
  static final int IMAGES_MAX = 128;

  /** Who takes tables, for reports. */
  private static final String USER = "copies of small buffers";

  private Packing() {}

  /** Whether it is one piece, and small. */
  static boolean fits(@Nullable Image image) {
    return image instanceof HostImage host && host.pieces() == 1 && host.bytes <= IMAGE_BYTES_MAX;
  }

  /** Null if there is none now. Does not wait. */
  static @Nullable HostBlock table(DeviceContext context) {
    try {
      return context.hostBlocks().tryTake((long) IMAGES_MAX * Pieces.ENTRY_BYTES, USER);
    } catch (DeviceException refused) {
      return null;
    }
  }

  /** A storage whose image is made with others. */
  interface Part extends Operand {
    HostImage image();

    /** Whether its bytes are still to be had, after it was acquired; else its address is none. */
    boolean isTaken();
  }

  /**
   * Enqueues copies of all parts to their images. If it fails, nothing of it counts as enqueued,
   * and what may be under way all the same touches blocks that are told so.
   *
   * @param parts in the order in which operands are acquired, at most {@link #IMAGES_MAX}
   * @param table is given back
   * @throws DeviceException if the driver refuses
   * @throws IllegalStateException if the stream was closed
   */
  static Mark down(DeviceStream stream, List<? extends Part> parts, HostBlock table) {
    Driver driver = stream.context().driver();
    Access[] reads = new Access[parts.size()];
    Arrays.fill(reads, Access.READ);
    Mark mark = null;
    try {
      long sequence =
          stream.enqueue(
              "spill together",
              parts.toArray(Operand[]::new),
              reads,
              (handle, addresses) -> {
                Pieces pieces = new Pieces(table.segment());
                for (int i = 0; i < parts.size(); i++) {
                  if (parts.get(i).isTaken()) {
                    pieces.add(addresses[i], parts.get(i).image().memory());
                  }
                }
                driver.copyPiecesToHost(handle, pieces);
              });
      mark = new Mark(stream, sequence);
      return mark;
    } finally {
      List<HostImage> images = new ArrayList<>(parts.size());
      parts.forEach(part -> images.add(part.image()));
      end(stream, mark, images, table);
    }
  }

  /**
   * Enqueues copies of images to these addresses; as {@link #down}.
   *
   * @param images all of them {@linkplain #fits fit}
   */
  static Mark up(DeviceStream stream, List<HostImage> images, long[] addresses, HostBlock table) {
    Driver driver = stream.context().driver();
    Mark mark = null;
    try {
      long sequence =
          stream.enqueue(
              "bring back together",
              new Operand[0],
              new Access[0],
              (handle, none) -> {
                Pieces pieces = new Pieces(table.segment());
                for (int i = 0; i < images.size(); i++) {
                  pieces.add(addresses[i], images.get(i).memory());
                }
                driver.copyPiecesToDevice(handle, pieces);
              });
      mark = new Mark(stream, sequence);
      return mark;
    } finally {
      end(stream, mark, images, table);
    }
  }

  private static void end(
      DeviceStream stream, @Nullable Mark mark, List<HostImage> images, HostBlock table) {
    Mark last = mark == null ? whereItIs(stream) : mark;
    if (last == null) {
      table.close();
      return;
    }
    images.forEach(image -> image.usedUntil(last));
    table.closeAfter(last);
  }

  /**
   * Behind whatever a refused operation has left there: a driver that copies one by one may have
   * begun. Null if the stream runs no more.
   */
  static @Nullable Mark whereItIs(DeviceStream stream) {
    try {
      return stream.foreignMark();
    } catch (DeviceException | IllegalStateException gone) {
      return null;
    }
  }
}
