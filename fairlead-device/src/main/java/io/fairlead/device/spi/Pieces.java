package io.fairlead.device.spi;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;

/**
 * Pieces of device memory, each with the host memory that it is copied from or to, for {@link
 * Driver#copyPiecesToHost} and {@link Driver#copyPiecesToDevice}.
 *
 * <p>They are written to a table in page-locked memory, which a device reads by itself: for each
 * piece three numbers of 8 bytes, its device address, its host address, and its bytes. Used by one
 * thread at a time. The table belongs to the caller, who gives it back, or fills it anew, once the
 * copies that were enqueued with it have ended.
 */
public final class Pieces {
  /** What a piece takes of the table. */
  public static final int ENTRY_BYTES = 3 * Long.BYTES;

  private final MemorySegment table;
  private final long[] addresses;
  private final MemorySegment[] hosts;
  private long bytes;
  private int count;

  /**
   * None yet.
   *
   * @param table from {@link Driver#hostAlloc}, with {@link #ENTRY_BYTES} for each piece that is to
   *     be added
   */
  public Pieces(MemorySegment table) {
    int room = (int) Math.min(Integer.MAX_VALUE, table.byteSize() / ENTRY_BYTES);
    this.table = table;
    this.addresses = new long[room];
    this.hosts = new MemorySegment[room];
    Arrays.fill(hosts, MemorySegment.NULL);
  }

  /**
   * Adds a piece; no two may overlap, neither here nor there.
   *
   * @param host page-locked memory from {@link Driver#hostAlloc}, as long as the piece
   * @throws IndexOutOfBoundsException if the table is full
   */
  public void add(long address, MemorySegment host) {
    int index = Objects.checkIndex(count, addresses.length);
    long at = (long) index * ENTRY_BYTES;
    table.set(JAVA_LONG, at, address);
    table.set(JAVA_LONG, at + Long.BYTES, host.address());
    table.set(JAVA_LONG, at + 2 * Long.BYTES, host.byteSize());
    addresses[index] = address;
    hosts[index] = host;
    bytes += host.byteSize();
    count++;
  }

  public int count() {
    return count;
  }

  /** Of all pieces together. */
  public long bytes() {
    return bytes;
  }

  /** On the device. */
  public long address(int index) {
    return addresses[Objects.checkIndex(index, count)];
  }

  public MemorySegment host(int index) {
    return hosts[Objects.checkIndex(index, count)];
  }

  /** The entries of all pieces. */
  public MemorySegment table() {
    return table.asSlice(0, (long) count * ENTRY_BYTES);
  }
}
