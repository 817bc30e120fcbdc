package io.fairlead.ffi.mpi;

import static io.fairlead.ffi.posix.ForeignCall.unexpected;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.ArrayList;
import java.util.List;

/**
 * The functions of one MPI library, one method each, named as in {@code mpi.h} without {@code
 * MPI_}. Pointers and handles are longs; the answer is MPI's error code, 0 for success.
 *
 * <p>There is one handle for each shape of call, a constant, which takes the function's address
 * first. No call is {@code critical}: each may copy a megabyte, and the collector would wait for
 * it.
 *
 * <p>Threads: as the library was initialised for; {@link MpiProcess} knows.
 */
final class MpiApi {

  // --- shapes of calls: P is a pointer or handle, I an int -------------------------------------

  private static final MethodHandle VOID = shape();
  private static final MethodHandle P = shape(JAVA_LONG);
  private static final MethodHandle PP = shape(JAVA_LONG, JAVA_LONG);
  private static final MethodHandle IPP = shape(JAVA_INT, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPP = shape(JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PIPP = shape(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PPIP = shape(JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG);
  private static final MethodHandle IPPPP =
      shape(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PIPIIPP =
      shape(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG, JAVA_LONG);
  private static final MethodHandle PIPPIPPP =
      shape(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);

  private final MemorySegment getLibraryVersion;
  private final MemorySegment initialized;
  private final MemorySegment finalized;
  private final MemorySegment initThread;
  private final MemorySegment queryThread;
  private final MemorySegment isThreadMain;
  private final MemorySegment finish;
  private final MemorySegment errorString;
  private final MemorySegment commRank;
  private final MemorySegment commSize;
  private final MemorySegment commIdup;
  private final MemorySegment commSetErrhandler;
  private final MemorySegment commGetAttr;
  private final MemorySegment isend;
  private final MemorySegment irecv;
  private final MemorySegment test;
  private final MemorySegment testsome;
  private final MemorySegment cancel;
  private final MemorySegment iallgather;

  private final List<String> missing = new ArrayList<>();

  private static MethodHandle shape(MemoryLayout... parameters) {
    return Linker.nativeLinker().downcallHandle(FunctionDescriptor.of(JAVA_INT, parameters));
  }

  MpiApi(SymbolLookup symbols) {
    getLibraryVersion = needed(symbols, "MPI_Get_library_version");
    initialized = needed(symbols, "MPI_Initialized");
    finalized = needed(symbols, "MPI_Finalized");
    initThread = needed(symbols, "MPI_Init_thread");
    queryThread = needed(symbols, "MPI_Query_thread");
    isThreadMain = needed(symbols, "MPI_Is_thread_main");
    finish = needed(symbols, "MPI_Finalize");
    errorString = needed(symbols, "MPI_Error_string");
    commRank = needed(symbols, "MPI_Comm_rank");
    commSize = needed(symbols, "MPI_Comm_size");
    commIdup = needed(symbols, "MPI_Comm_idup");
    commSetErrhandler = needed(symbols, "MPI_Comm_set_errhandler");
    commGetAttr = needed(symbols, "MPI_Comm_get_attr");
    isend = needed(symbols, "MPI_Isend");
    irecv = needed(symbols, "MPI_Irecv");
    test = needed(symbols, "MPI_Test");
    testsome = needed(symbols, "MPI_Testsome");
    cancel = needed(symbols, "MPI_Cancel");
    iallgather = needed(symbols, "MPI_Iallgather");
  }

  private MemorySegment needed(SymbolLookup symbols, String name) {
    return symbols
        .find(name)
        .orElseGet(
            () -> {
              missing.add(name);
              return MemorySegment.NULL;
            });
  }

  /** The functions that are needed and not there. */
  List<String> missing() {
    return List.copyOf(missing);
  }

  // --- functions, as in mpi.h -------------------------------------------------------------------

  int getLibraryVersion(long text, long length) {
    try {
      return (int) PP.invokeExact(this.getLibraryVersion, text, length);
    } catch (Throwable e) {
      throw unexpected("MPI_Get_library_version", e);
    }
  }

  int initialized(long flag) {
    try {
      return (int) P.invokeExact(this.initialized, flag);
    } catch (Throwable e) {
      throw unexpected("MPI_Initialized", e);
    }
  }

  int finalized(long flag) {
    try {
      return (int) P.invokeExact(this.finalized, flag);
    } catch (Throwable e) {
      throw unexpected("MPI_Finalized", e);
    }
  }

  int initThread(long argc, long argv, int required, long provided) {
    try {
      return (int) PPIP.invokeExact(this.initThread, argc, argv, required, provided);
    } catch (Throwable e) {
      throw unexpected("MPI_Init_thread", e);
    }
  }

  int queryThread(long provided) {
    try {
      return (int) P.invokeExact(this.queryThread, provided);
    } catch (Throwable e) {
      throw unexpected("MPI_Query_thread", e);
    }
  }

  int isThreadMain(long flag) {
    try {
      return (int) P.invokeExact(this.isThreadMain, flag);
    } catch (Throwable e) {
      throw unexpected("MPI_Is_thread_main", e);
    }
  }

  int finish() {
    try {
      return (int) VOID.invokeExact(this.finish);
    } catch (Throwable e) {
      throw unexpected("MPI_Finalize", e);
    }
  }

  int errorString(int status, long text, long length) {
    try {
      return (int) IPP.invokeExact(this.errorString, status, text, length);
    } catch (Throwable e) {
      throw unexpected("MPI_Error_string", e);
    }
  }

  int commRank(long comm, long rank) {
    try {
      return (int) PP.invokeExact(this.commRank, comm, rank);
    } catch (Throwable e) {
      throw unexpected("MPI_Comm_rank", e);
    }
  }

  int commSize(long comm, long size) {
    try {
      return (int) PP.invokeExact(this.commSize, comm, size);
    } catch (Throwable e) {
      throw unexpected("MPI_Comm_size", e);
    }
  }

  int commIdup(long comm, long duplicate, long request) {
    try {
      return (int) PPP.invokeExact(this.commIdup, comm, duplicate, request);
    } catch (Throwable e) {
      throw unexpected("MPI_Comm_idup", e);
    }
  }

  int commSetErrhandler(long comm, long handler) {
    try {
      return (int) PP.invokeExact(this.commSetErrhandler, comm, handler);
    } catch (Throwable e) {
      throw unexpected("MPI_Comm_set_errhandler", e);
    }
  }

  int commGetAttr(long comm, int key, long value, long flag) {
    try {
      return (int) PIPP.invokeExact(this.commGetAttr, comm, key, value, flag);
    } catch (Throwable e) {
      throw unexpected("MPI_Comm_get_attr", e);
    }
  }

  int isend(long buffer, int count, long type, int target, int tag, long comm, long request) {
    try {
      return (int) PIPIIPP.invokeExact(this.isend, buffer, count, type, target, tag, comm, request);
    } catch (Throwable e) {
      throw unexpected("MPI_Isend", e);
    }
  }

  int irecv(long buffer, int count, long type, int source, int tag, long comm, long request) {
    try {
      return (int) PIPIIPP.invokeExact(this.irecv, buffer, count, type, source, tag, comm, request);
    } catch (Throwable e) {
      throw unexpected("MPI_Irecv", e);
    }
  }

  int test(long request, long flag, long status) {
    try {
      return (int) PPP.invokeExact(this.test, request, flag, status);
    } catch (Throwable e) {
      throw unexpected("MPI_Test", e);
    }
  }

  int testsome(int count, long requests, long done, long indices, long statuses) {
    try {
      return (int) IPPPP.invokeExact(this.testsome, count, requests, done, indices, statuses);
    } catch (Throwable e) {
      throw unexpected("MPI_Testsome", e);
    }
  }

  int cancel(long request) {
    try {
      return (int) P.invokeExact(this.cancel, request);
    } catch (Throwable e) {
      throw unexpected("MPI_Cancel", e);
    }
  }

  int iallgather(
      long mine,
      int mineCount,
      long mineType,
      long all,
      int allCount,
      long allType,
      long comm,
      long request) {
    try {
      return (int)
          PIPPIPPP.invokeExact(
              this.iallgather, mine, mineCount, mineType, all, allCount, allType, comm, request);
    } catch (Throwable e) {
      throw unexpected("MPI_Iallgather", e);
    }
  }
}
