package io.fairlead.cli.join;

import io.fairlead.memory.Device;
import io.fairlead.memory.DeviceBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.jspecify.annotations.Nullable;

/**
 * One of the two tables on the device: first as chunks, then as the pieces of its partitions.
 *
 * <p>Where each chunk's rows of a partition go follows from how many rows of it the chunks before
 * have. So chunks are scattered in any order, by any tasks, without one waiting for another; pieces
 * are made by whoever comes first.
 *
 * <pre>
 * field    | writer                     | reader          | mode
 * chunks   | who loads it, who closes it | who scatters it | volatile, by AtomicReferenceArray
 * counts   | who loads the chunk         | all             | plain: a join of all tasks lies between
 * starts   | the caller, between phases  | all             | plain, likewise
 * pieces   | the first to need it        | all             | compare-and-set
 * </pre>
 */
final class Side implements AutoCloseable {
  final Table table;
  private final Device device;
  private final int chunkRows;
  private final int pieceRows;
  private final AtomicReferenceArray<@Nullable DeviceBuffer> chunks;

  /** Rows of each chunk by partition, later where they begin in the partition. */
  private final long[][] counts;

  private final long[][] starts;
  private final long[] totals;
  private final List<AtomicReferenceArray<@Nullable DeviceBuffer>> pieces = new ArrayList<>();

  Side(Device device, Table table, JoinPlan plan) {
    this.device = device;
    this.table = table;
    this.chunkRows = plan.chunkRows(table);
    this.pieceRows = plan.pieceRows(table);
    int count = (int) Math.ceilDiv(table.rows(), chunkRows);
    this.chunks = new AtomicReferenceArray<>(count);
    this.counts = new long[count][];
    this.starts = new long[count][plan.partitions()];
    this.totals = new long[plan.partitions()];
  }

  // --- chunks -------------------------------------------------------------------------------

  int chunks() {
    return chunks.length();
  }

  long firstRow(int chunk) {
    return (long) chunk * chunkRows;
  }

  int rows(int chunk) {
    return (int) Math.min(chunkRows, table.rows() - firstRow(chunk));
  }

  /** Bytes of the largest chunk. */
  long chunkBytes() {
    return Math.min(chunkRows, table.rows()) * table.rowBytes();
  }

  /** Takes over what was loaded. */
  void loaded(int chunk, DeviceBuffer rows) {
    chunks.set(chunk, rows);
  }

  void counted(int chunk, long[] rows) {
    counts[chunk] = rows;
  }

  /** A chunk that was loaded; its owner from now on is the caller. */
  DeviceBuffer take(int chunk) {
    DeviceBuffer rows = chunks.getAndSet(chunk, null);
    if (rows == null) {
      throw new IllegalStateException("chunk " + chunk + " was taken already, or never loaded");
    }
    return rows;
  }

  /** How many rows of the chunk each partition gets. */
  long[] counts(int chunk) {
    return counts[chunk];
  }

  // --- partitions ---------------------------------------------------------------------------

  /** All chunks are counted: says where each one's rows go. */
  void layOut() {
    for (int chunk = 0; chunk < counts.length; chunk++) {
      for (int p = 0; p < totals.length; p++) {
        starts[chunk][p] = totals[p];
        totals[p] += counts[chunk][p];
      }
    }
    for (long total : totals) {
      pieces.add(new AtomicReferenceArray<>((int) Math.ceilDiv(total, pieceRows)));
    }
  }

  /** Rows of a partition. */
  long rowsOf(int partition) {
    return totals[partition];
  }

  /** Bytes of the largest piece of a partition. */
  long pieceBytesOf(int partition) {
    return Math.min(pieceRows, totals[partition]) * table.rowBytes();
  }

  int pieces(int partition) {
    return pieces.get(partition).length();
  }

  int rowsOfPiece(int partition, int piece) {
    return (int) Math.min(pieceRows, totals[partition] - (long) piece * pieceRows);
  }

  /**
   * Copies a chunk's rows of one partition to its pieces, on the stream of the calling task.
   *
   * @param from where they begin in {@code sorted}, in rows
   */
  void append(int chunk, int partition, DeviceBuffer sorted, long from) {
    long bytes = table.rowBytes();
    long row = from;
    long at = starts[chunk][partition];
    long end = at + counts[chunk][partition];
    while (at < end) {
      int piece = (int) (at / pieceRows);
      long inPiece = at % pieceRows;
      long count = Math.min(end - at, pieceRows - inPiece);
      made(partition, piece).copyFrom(inPiece * bytes, sorted, row * bytes, count * bytes);
      at += count;
      row += count;
    }
  }

  private DeviceBuffer made(int partition, int piece) {
    AtomicReferenceArray<@Nullable DeviceBuffer> all = pieces.get(partition);
    DeviceBuffer known = all.get(piece);
    if (known != null) {
      return known;
    }
    DeviceBuffer made = device.allocate(rowsOfPiece(partition, piece) * table.rowBytes());
    if (all.compareAndSet(piece, null, made)) {
      return made;
    }
    made.close(); // another task came first
    return piece(partition, piece);
  }

  /** A piece that was made. */
  DeviceBuffer piece(int partition, int piece) {
    DeviceBuffer rows = pieces.get(partition).get(piece);
    if (rows == null) {
      throw new IllegalStateException("piece " + piece + " of partition " + partition + " is gone");
    }
    return rows;
  }

  /** Nobody needs the partition's rows any more. */
  void closePartition(int partition) {
    closeAll(pieces.get(partition));
  }

  private static void closeAll(AtomicReferenceArray<@Nullable DeviceBuffer> buffers) {
    for (int i = 0; i < buffers.length(); i++) {
      DeviceBuffer buffer = buffers.getAndSet(i, null);
      if (buffer != null) {
        buffer.close();
      }
    }
  }

  /** Closes what is left: after a failure, anything. */
  @Override
  public void close() {
    closeAll(chunks);
    pieces.forEach(Side::closeAll);
  }
}
