package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import java.lang.foreign.MemorySegment;
import java.util.Optional;
import java.util.function.Function;

/**
 * What the two families of MPI libraries do differently in their binary interface. The numbers are
 * those of {@code mpi.h}: Open MPI since 1.7, and the common binary interface of MPICH, Intel MPI,
 * MVAPICH and Cray MPICH.
 *
 * <p>The standard interface of MPI 5 will be a third one; {@link MpiLibrary} already knows such a
 * library from the others, and says that it is not driven yet.
 *
 * <p>Handles are passed as longs in both. Open MPI's are pointers. MPICH's are ints: in a register
 * or a stack slot of 8 bytes, a function that takes an int looks at the lower half alone, on x86-64
 * and on AArch64. In arrays each takes {@link #handleBytes}.
 */
enum MpiFlavour {
  /** Handles are pointers to objects that the library exports. */
  OPEN_MPI(8, 24, 0, 4, 8, -1, 0L, 0, 18) {
    @Override
    long constant(Constant which, Function<String, Optional<MemorySegment>> symbols) {
      return symbols.apply(which.openMpi).map(MemorySegment::address).orElse(0L);
    }

    @Override
    long count(MemorySegment statuses, long status) {
      return statuses.get(JAVA_LONG_UNALIGNED, status + 16);
    }
  },

  /** Handles are numbers. */
  MPICH(4, 20, 8, 12, 16, -2, 1L, 0x6440_0001, 17) {
    @Override
    long constant(Constant which, Function<String, Optional<MemorySegment>> symbols) {
      return which.mpich;
    }

    @Override
    long count(MemorySegment statuses, long status) {
      // The lower half; then the upper half, above a bit that says "cancelled".
      long low = intAt(statuses, status) & 0xFFFF_FFFFL;
      long high = intAt(statuses, status + 4) & 0xFFFF_FFFFL;
      return high >>> 1 << 32 | low;
    }
  };

  /** Predefined handles that are needed. */
  enum Constant {
    COMM_WORLD("ompi_mpi_comm_world", 0x4400_0000),
    COMM_SELF("ompi_mpi_comm_self", 0x4400_0001),
    BYTE("ompi_mpi_byte", 0x4c00_010d),
    ERRORS_RETURN("ompi_mpi_errors_return", 0x5400_0001);

    private final String openMpi;
    private final int mpich;

    Constant(String openMpi, int mpich) {
      this.openMpi = openMpi;
      this.mpich = mpich;
    }

    String openMpiSymbol() {
      return openMpi;
    }
  }

  /** The size of a handle in memory: of a communicator or a request, and of each in an array. */
  final int handleBytes;

  final int statusBytes;
  private final int sourceOffset;
  private final int tagOffset;
  private final int errorOffset;
  final int anySource;

  /** The address that stands for "no status wanted". */
  final long statusIgnore;

  /** The attribute with the largest tag. */
  final int tagMaxKey;

  /** The answer of a call on several requests, some of which failed: their statuses say which. */
  final int errorInStatus;

  MpiFlavour(
      int handleBytes,
      int statusBytes,
      int sourceOffset,
      int tagOffset,
      int errorOffset,
      int anySource,
      long statusIgnore,
      int tagMaxKey,
      int errorInStatus) {
    this.handleBytes = handleBytes;
    this.statusBytes = statusBytes;
    this.sourceOffset = sourceOffset;
    this.tagOffset = tagOffset;
    this.errorOffset = errorOffset;
    this.anySource = anySource;
    this.statusIgnore = statusIgnore;
    this.tagMaxKey = tagMaxKey;
    this.errorInStatus = errorInStatus;
  }

  /** A predefined handle; 0 if the library lacks it. */
  abstract long constant(Constant which, Function<String, Optional<MemorySegment>> symbols);

  /** The bytes that a receive got, from its status at this offset. */
  abstract long count(MemorySegment statuses, long status);

  int source(MemorySegment statuses, long status) {
    return intAt(statuses, status + sourceOffset);
  }

  int tag(MemorySegment statuses, long status) {
    return intAt(statuses, status + tagOffset);
  }

  int error(MemorySegment statuses, long status) {
    return intAt(statuses, status + errorOffset);
  }

  /** The handle at an index of an array. */
  long handle(MemorySegment array, int index) {
    long at = (long) index * handleBytes;
    return handleBytes == Long.BYTES ? array.get(JAVA_LONG, at) : array.get(JAVA_INT, at);
  }

  void setHandle(MemorySegment array, int index, long handle) {
    long at = (long) index * handleBytes;
    if (handleBytes == Long.BYTES) {
      array.set(JAVA_LONG, at, handle);
    } else {
      array.set(JAVA_INT, at, (int) handle);
    }
  }

  private static int intAt(MemorySegment memory, long offset) {
    return memory.get(JAVA_INT_UNALIGNED, offset);
  }
}
