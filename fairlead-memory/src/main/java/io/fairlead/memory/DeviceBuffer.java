package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.DeviceContext;
import io.fairlead.device.DeviceStream;
import io.fairlead.device.HostBlock;
import io.fairlead.device.Mark;
import io.fairlead.device.Operand;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.util.Objects;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Memory on a device. Its order follows its data: whoever uses it, on whichever stream, comes after
 * what was done to it before, and its memory is given back after its last use; see {@link Storage}
 * for the ledger behind that.
 *
 * <p>All operations are enqueued on the stream of the task that calls, unless they say otherwise,
 * and may park the task while that stream is full. Those that <i>wait</i> say so.
 *
 * <p><b>Spilling.</b> Where others need room, what is idle leaves the device for pinned host
 * memory, and for disk. The next operation that uses it brings it back by itself, together with
 * whatever else it uses there: it parks until there is room for all of that, as an allocation does,
 * and fails as that does. A buffer whose address is known to others does not leave: one that is
 * leased, held, in a graph, or adopted.
 *
 * <p><b>Ownership.</b> Whoever allocated it closes it, once its last operation was enqueued; the
 * work need not have ended. A {@link #slice} is a view: closing it frees nothing. A buffer that is
 * dropped without being closed is found by the collector, freed in order, and reported with the
 * place that made it.
 *
 * <p><b>Threads.</b> Any, also at once. Two tasks that use it at once without an order of their own
 * are put into one, but which one is not said.
 *
 * <p><b>Errors.</b> {@link IllegalStateException} after close, saying where that was; {@link
 * IllegalArgumentException} for sizes that do not fit, with both sizes; {@link
 * io.fairlead.device.DeviceException} if the driver refuses or the context is lost.
 */
public final class DeviceBuffer implements AutoCloseable, Operand {
  private final Device device;
  private final Storage storage;
  private final long offset;
  private final long bytes;

  /** Null for the buffer that was allocated; a view keeps it from being collected. */
  private final @Nullable DeviceBuffer parent;

  /** Of a view; the allocated buffer's end is its storage's. */
  private volatile @Nullable Site viewClosedAt;

  DeviceBuffer(Device device, Storage storage) {
    this(device, storage, 0, storage.bytes, null);
  }

  private DeviceBuffer(
      Device device, Storage storage, long offset, long bytes, @Nullable DeviceBuffer parent) {
    this.device = device;
    this.storage = storage;
    this.offset = offset;
    this.bytes = bytes;
    this.parent = parent;
  }

  /** Its size in bytes; what was asked for, not what the device rounds it to. */
  @Override
  public long bytes() {
    return bytes;
  }

  public Device device() {
    return device;
  }

  Storage storage() {
    return storage;
  }

  long offset() {
    return offset;
  }

  /**
   * A view of {@code bytes} from {@code offset} on. It shares this buffer's memory and its ledger,
   * and must not be used after this buffer was closed.
   *
   * @throws IndexOutOfBoundsException if the range is not inside this buffer
   */
  public DeviceBuffer slice(long offset, long bytes) {
    requireOpen();
    requireRange(offset, bytes);
    return new DeviceBuffer(
        device,
        Mutant.on("ledger.slice.own") ? storage.twin() : storage,
        this.offset + offset,
        bytes,
        this);
  }

  // --- host to device -----------------------------------------------------------------------

  /**
   * Copies {@code source} to the beginning of this buffer. As {@link #upload(long, MemorySegment)}.
   */
  public void upload(MemorySegment source) {
    upload(0, source);
  }

  /**
   * Copies {@code source}, native or on the heap, to {@code offset}. The source may be changed as
   * soon as this returns: it was copied to pinned memory. A source of more than a chunk goes in
   * chunks, and the call parks while too many of them are under way.
   *
   * @throws IllegalArgumentException if the source does not fit
   */
  public void upload(long offset, MemorySegment source) {
    requireFits("upload", offset, source.byteSize());
    device.transfers().upload(this, offset, source);
  }

  public void upload(double[] source) {
    upload(0, MemorySegment.ofArray(source));
  }

  public void upload(float[] source) {
    upload(0, MemorySegment.ofArray(source));
  }

  public void upload(long[] source) {
    upload(0, MemorySegment.ofArray(source));
  }

  public void upload(int[] source) {
    upload(0, MemorySegment.ofArray(source));
  }

  public void upload(byte[] source) {
    upload(0, MemorySegment.ofArray(source));
  }

  /**
   * As {@link #upload(MemorySegment)}, with a completion: the data has arrived when it is done. The
   * caller keeps the source unchanged until then.
   */
  public Completion<Void> uploadFrom(MemorySegment source) {
    requireFits("upload", 0, source.byteSize());
    Mark arrived = device.transfers().upload(this, 0, source);
    return arrived.stream().reached(arrived);
  }

  /**
   * Copies the first {@code bytes} of a pinned block, without another copy on the way. The block
   * stays the caller's, who must not change it before the completion is done.
   */
  public Completion<Void> uploadFrom(HostBlock source, long bytes) {
    requireFits("upload", 0, bytes);
    return device.transfers().uploadPinned(this, source, bytes);
  }

  // --- device to host -----------------------------------------------------------------------

  /**
   * Copies this buffer to host memory and hands that to {@code reader}, whose result the completion
   * brings. The segment is valid only inside the reader.
   *
   * <p>The reader runs on a thread of Fairlead's own, as no task: it must not wait. What it throws
   * fails the completion. Returns without waiting, except that a buffer of more than a chunk is
   * fetched chunk by chunk and the call parks until the last one is under way.
   */
  public <R extends @Nullable Object> Completion<R> download(Function<MemorySegment, R> reader) {
    Objects.requireNonNull(reader, "reader");
    requireOpen();
    return device.transfers().download(this, reader);
  }

  /**
   * Copies this buffer to the beginning of {@code target} and waits for it.
   *
   * @throws IllegalArgumentException if the target is too small or read-only
   */
  public void downloadInto(MemorySegment target) {
    requireTarget(target);
    device.transfers().downloadInto(this, target);
  }

  /**
   * Copies this buffer to the beginning of {@code target}, which the caller leaves alone until the
   * completion is done. Returns as {@link #download} does.
   */
  public Completion<Void> downloadTo(MemorySegment target) {
    requireTarget(target);
    return device.transfers().downloadTo(this, target);
  }

  /** As {@link #downloadTo(MemorySegment)} to a pinned block, without another copy on the way. */
  public Completion<Void> downloadTo(HostBlock target) {
    requireTarget(target.segment());
    return device.transfers().downloadPinned(this, target);
  }

  /** Copies this buffer to a new array and waits for it. */
  public double[] toDoubles() {
    double[] result = new double[elements(Double.BYTES, "doubles")];
    downloadInto(MemorySegment.ofArray(result));
    return result;
  }

  /** Copies this buffer to a new array and waits for it. */
  public float[] toFloats() {
    float[] result = new float[elements(Float.BYTES, "floats")];
    downloadInto(MemorySegment.ofArray(result));
    return result;
  }

  /** Copies this buffer to a new array and waits for it. */
  public long[] toLongs() {
    long[] result = new long[elements(Long.BYTES, "longs")];
    downloadInto(MemorySegment.ofArray(result));
    return result;
  }

  /** Copies this buffer to a new array and waits for it. */
  public int[] toInts() {
    int[] result = new int[elements(Integer.BYTES, "ints")];
    downloadInto(MemorySegment.ofArray(result));
    return result;
  }

  /** Copies this buffer to a new array and waits for it. */
  public byte[] toBytes() {
    byte[] result = new byte[elements(1, "bytes")];
    downloadInto(MemorySegment.ofArray(result));
    return result;
  }

  private int elements(int size, String what) {
    if (bytes % size != 0 || bytes / size > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException(
          "a buffer of " + bytes + " bytes is no array of " + what + "; download a slice of it");
    }
    return (int) (bytes / size);
  }

  // --- on the device ------------------------------------------------------------------------

  /** Copies all of {@code source} to the beginning of this buffer. */
  public void copyFrom(DeviceBuffer source) {
    copyFrom(0, source, 0, source.bytes);
  }

  /**
   * Copies {@code bytes} from {@code sourceOffset} of {@code source} to {@code offset} of this
   * buffer. It does not wait: between devices of one driver the bytes go directly where the
   * hardware can, and the driver takes them through the host where it cannot. Only where the driver
   * copies within a device alone do they go through pinned memory, and the call parks until the
   * source's device has handed them over.
   *
   * @throws IllegalArgumentException if the ranges do not fit, or overlap in one buffer
   */
  public void copyFrom(long offset, DeviceBuffer source, long sourceOffset, long bytes) {
    requireFits("copy", offset, bytes);
    source.requireRange(sourceOffset, bytes);
    if (source.storage == storage
        && Math.abs(source.offset + sourceOffset - this.offset - offset) < bytes) {
      throw new IllegalArgumentException(
          "the source and the target of a copy of "
              + bytes
              + " bytes overlap; copy through another buffer");
    }
    device.transfers().copy(this, offset, source, sourceOffset, bytes);
  }

  /** Sets every byte. */
  public void fill(byte value) {
    requireOpen();
    device.transfers().fill(this, value);
  }

  /**
   * Sets every short.
   *
   * @throws IllegalArgumentException if this buffer is no array of shorts
   */
  public void fillShorts(short value) {
    requireOpen();
    requireElements(Short.BYTES, "shorts");
    device.transfers().fill(this, Short.BYTES, value);
  }

  /**
   * Sets every int, or every float by its bits.
   *
   * @throws IllegalArgumentException if this buffer is no array of ints
   */
  public void fillInts(int value) {
    requireOpen();
    requireElements(Integer.BYTES, "ints");
    device.transfers().fill(this, Integer.BYTES, value);
  }

  private void requireElements(int size, String what) {
    if (bytes % size != 0 || offset % size != 0) {
      throw new IllegalArgumentException(this + ", from " + offset + " on, is no array of " + what);
    }
  }

  // --- lending it ---------------------------------------------------------------------------

  /** As {@link #lease(DeviceStream, Access)}, to read and write. */
  public Lease lease(DeviceStream stream) {
    return lease(stream, Access.READ_WRITE);
  }

  /**
   * Lends the raw address to foreign code, which may enqueue work on {@code stream} until the lease
   * is closed. The stream is ordered after everything that {@code access} conflicts with. While the
   * lease is open, conflicting uses on other streams are refused: where the foreign work stands is
   * not known yet.
   */
  public Lease lease(DeviceStream stream, Access access) {
    Objects.requireNonNull(stream, "stream");
    requireOpen();
    if (stream.isCaptured()) {
      throw new IllegalStateException(
          "lease: "
              + stream
              + " is being captured, and a lease ends before the graph does; let foreign code enqueue"
              + " in the body of stream.enqueue(operation, operands, accesses, body)");
    }
    Keeper keeper = Keeper.begin(device.account());
    try {
      storage.lend(stream, access, keeper);
    } catch (RuntimeException | Error failure) {
      keeper.end();
      throw failure;
    }
    try {
      long[] address = new long[1];
      long begin =
          stream.enqueue(
              "lease",
              new Operand[] {this},
              new Access[] {access},
              (handle, addresses) -> address[0] = addresses[0]);
      return new Lease(this, access, address[0], new Mark(stream, begin), keeper);
    } catch (RuntimeException | Error failure) {
      keeper.end();
      if (storage.takeBack(stream, access, keeper)) {
        device.free(storage);
      }
      throw failure;
    }
  }

  // --- where it is --------------------------------------------------------------------------

  /** Where its bytes can be read just now. Any thread; does not block. */
  public Tier tier() {
    return storage.tier();
  }

  /**
   * Keeps it on the device until the result is closed; brings it back first, and parks for that, if
   * it was spilled. Its uses need no hold, however many buffers they have: this is for who wants
   * them not to wait. A view holds all of its buffer.
   *
   * @throws io.fairlead.device.OutOfDeviceMemoryException if there was no room in time
   */
  public Hold hold() {
    requireOpen();
    Keeper keeper = Keeper.begin(device.account());
    try {
      if (!storage.hold(keeper)) {
        holdBroughtBack(keeper);
      }
    } catch (RuntimeException | Error failure) {
      keeper.end();
      throw failure;
    }
    return new Hold(this, keeper);
  }

  private void holdBroughtBack(Keeper keeper) {
    boolean held = false;
    while (!held) {
      try (var _ = bringBack(device.stream(), new Operand[] {this})) {
        held = storage.hold(keeper);
      }
    }
  }

  void endHold(Keeper keeper) {
    keeper.end();
    if (storage.letGo(keeper)) {
      device.free(storage);
    }
    device.spiller().mayPick();
  }

  /**
   * Says who leaves the device first when others need room: lower ones before higher ones, whatever
   * they were used last. 0 for one that nobody has said it of. Of all of its buffer, for a view.
   * Any thread; does not block.
   */
  public void priority(int priority) {
    storage.priority = priority;
  }

  /**
   * Asks for it to leave the device, without waiting for that; the next use brings it back by
   * itself. The completion brings where it is in the end, which is the device if it was used
   * meanwhile, is held, or has nowhere to go. Any thread.
   */
  public Completion<Tier> spill() {
    requireOpen();
    return device.spiller().spill(storage);
  }

  void endLease(Mark mark, Access access, Keeper keeper) {
    keeper.end();
    if (!Mutant.on("ledger.lease.skip")) {
      storage.recordLease(mark.stream(), mark.sequence(), access);
    }
    if (storage.takeBack(mark.stream(), access, keeper)) {
      device.free(storage);
    }
    device.spiller().mayPick();
  }

  // --- what streams ask of it ---------------------------------------------------------------

  /** For {@link DeviceStream}: orders the coming operation and gives the address. */
  @Override
  public long acquire(DeviceStream stream, Access access) {
    if (parent == null && storage.acquireOwn(stream, access)) {
      return storage.address + offset; // its owner is of its device, and nobody has closed it
    }
    requireOpen();
    requireContext(stream.context(), "a stream of ");
    return storage.acquire(stream, access) ? storage.address + offset : AWAY;
  }

  /** For {@link DeviceStream}: brings it and the other buffers among the operands back. */
  @Override
  public Stay bringBack(DeviceStream stream, Operand[] operands) {
    return Returns.bringBack(stream, operands);
  }

  /** The buffer that an operand uses; null for those of others. */
  static @Nullable DeviceBuffer behind(Operand operand) {
    return switch (operand) {
      case DeviceBuffer buffer -> buffer;
      case ForPeers view -> view.buffer();
      default -> null;
    };
  }

  /** For {@link DeviceStream}. */
  @Override
  public void recorded(DeviceStream stream, long sequence, Access access) {
    storage.recorded(stream, sequence, access);
  }

  /** For {@link DeviceStream}. */
  @Override
  public void abandoned(DeviceStream stream, Access access) {
    storage.abandoned(stream, access);
  }

  /** For graphs: keeps the memory, also if it is closed, and gives its address. */
  @Override
  public long hold(DeviceContext context, Object graph) {
    requireOpen();
    requireContext(context, "");
    Keeper keeper = Keeper.begin(device.account(), graph);
    boolean held = false;
    try {
      held = storage.hold(keeper);
      return held ? storage.address + offset : AWAY;
    } finally {
      if (!held) {
        keeper.end();
      }
    }
  }

  /** For graphs: nobody has to do anything any more for the memory to come back. */
  @Override
  public void leaving(Object graph) {
    storage.leaving(graph);
  }

  /** For graphs. */
  @Override
  public void letGo(Object graph) {
    if (storage.letGoOf(graph)) {
      device.freeHeld(storage);
    }
    device.spiller().mayPick();
  }

  /**
   * @param what of the device it is used on: "a stream of ", or nothing
   */
  private void requireContext(DeviceContext context, String what) {
    if (context != device.context()) {
      throw new IllegalArgumentException(
          this
              + " is used on "
              + what
              + "device "
              + context.ordinal()
              + "; use "
              + what
              + "its own device, or copyFrom to bring the data over");
    }
  }

  /** For {@link DeviceStream}: views of one storage share it. */
  @Override
  public long order() {
    return storage.id;
  }

  /** This buffer as streams of other devices read it, which copy from it. */
  Operand forPeers() {
    return new ForPeers();
  }

  private final class ForPeers implements StorageUse {
    @Override
    public Storage storage() {
      return storage;
    }

    @Override
    public long bytes() {
      return bytes;
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      requireOpen();
      return storage.acquire(stream, access) ? storage.address + offset : AWAY;
    }

    @Override
    public Stay bringBack(DeviceStream stream, Operand[] operands) {
      return Returns.bringBack(stream, operands);
    }

    private DeviceBuffer buffer() {
      return DeviceBuffer.this;
    }
  }

  // --- its end ------------------------------------------------------------------------------

  /**
   * Frees the memory after every use that was enqueued before, on whichever stream. Does not wait
   * for them. A second close does nothing. On a device manager, a transport's thread or the cleaner
   * it only hands the buffer to the owner, which frees it.
   */
  @Override
  public void close() {
    if (parent != null) {
      closeView();
      return;
    }
    try {
      device.close(storage);
    } finally {
      Reference.reachabilityFence(this); // it is not dropped while it is being closed
    }
  }

  private void closeView() {
    // Two closers at once: either place is true.
    if (viewClosedAt == null) {
      viewClosedAt = device.site();
    }
  }

  private void requireOpen() {
    for (DeviceBuffer view = this; view != null; view = view.parent) {
      if (view.viewClosedAt != null) {
        throw new IllegalStateException(
            "the slice " + view + " was closed at " + view.viewClosedAt);
      }
    }
    storage.requireOpen();
  }

  private void requireRange(long offset, long bytes) {
    if (offset < 0 || bytes < 0 || offset > this.bytes - bytes) {
      throw new IndexOutOfBoundsException(
          "offset " + offset + " and " + bytes + " bytes are not inside " + this);
    }
  }

  private void requireFits(String what, long offset, long bytes) {
    requireOpen();
    if (offset < 0 || bytes < 0 || offset > this.bytes - bytes) {
      throw new IllegalArgumentException(
          what + " of " + bytes + " bytes to offset " + offset + " does not fit into " + this);
    }
  }

  private void requireTarget(MemorySegment target) {
    requireOpen();
    if (target.isReadOnly()) {
      throw new IllegalArgumentException("the target of a download is read-only");
    }
    if (target.byteSize() < bytes) {
      throw new IllegalArgumentException(
          "a target of " + target.byteSize() + " bytes is too small for " + this);
    }
  }

  @Override
  public String toString() {
    return (parent == null ? "buffer of " : "slice of ")
        + Sizes.text(bytes)
        + " on device "
        + device.info().ordinal();
  }
}
