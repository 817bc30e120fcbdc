package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.KernelArguments;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.device.spi.Pieces;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * Copies of many pieces by one launch of a kernel of a context, which reads and writes page-locked
 * host memory by itself: a copy for each of 1024 pieces of 4 KiB costs more than moving them.
 *
 * <p>The kernel is the resource {@code pieces.cu}, and what {@code scripts/prebuild-kernels} made
 * of it. Where none of its forms can be loaded there is no kernel, and pieces go one by one.
 *
 * <pre>
 * field  | writer           | reader | mode, guard
 * kernel | who prepares     | any    | volatile, under loading; once. It ends with its context
 * tried  | who prepares     | same   | loading, which may block
 * </pre>
 */
final class CudaPieces {
  private static final String NAME = "fairlead_copy_pieces";

  /** Threads of a block, which copy 16 bytes each at a time: a piece of 4 KiB at once. */
  private static final int THREADS = 256;

  /** Enough to keep the bus busy, and half of a large device's multiprocessors for others. */
  private static final int BLOCKS_MAX = 64;

  private final ReentrantLock loading = new ReentrantLock();
  private volatile @Nullable CudaKernel kernel;
  private boolean tried;

  /** Whether there is a kernel now. Blocks, the first time; the context is current, and entered. */
  boolean prepare(CudaContext context, CudaLoader loader) {
    loading.lock();
    try {
      if (!tried) {
        kernel = load(context, loader);
        tried = true;
      }
      return kernel != null;
    } finally {
      loading.unlock();
    }
  }

  private static @Nullable CudaKernel load(CudaContext context, CudaLoader loader) {
    for (ModuleImage image : images()) {
      if (loader.accepts(image, context.device)) {
        try {
          return loader.load(context, image).kernel(NAME);
        } catch (DriverException refused) {
          context.checkSound(); // another form may do, or none: pieces can go one by one
        }
      }
    }
    return null;
  }

  /** As the solver's: machine code, then source where there is a compiler, then PTX. */
  private static List<ModuleImage> images() {
    return List.of(
        new ModuleImage.Binary(bytes("pieces.fatbin")),
        new ModuleImage.CudaSource("pieces.cu", text("pieces.cu")),
        new ModuleImage.Ptx(text("pieces.ptx")));
  }

  private static String text(String resource) {
    return new String(bytes(resource), StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String resource) {
    try (InputStream file = CudaPieces.class.getResourceAsStream(resource)) {
      return Objects.requireNonNull(file, "resource " + resource).readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException("cannot read the resource " + resource, e);
    }
  }

  /** Whether it was enqueued; else there is no kernel. The stream is entered. */
  boolean copy(CudaStream stream, Pieces pieces, boolean down) {
    CudaKernel code = kernel;
    if (code == null || !code.module.enter()) {
      return false;
    }
    try {
      check(pieces, down);
      int blocks = Math.min(pieces.count(), BLOCKS_MAX);
      Grid grid = Grid.of((long) blocks * THREADS).withBlock(THREADS);
      code.launch(stream, grid, new Arguments(pieces.table(), pieces.count(), down));
    } finally {
      code.module.exit();
      Reference.reachabilityFence(pieces);
    }
    return true;
  }

  private static void check(Pieces pieces, boolean down) {
    CudaDriver.checkHost(pieces.table());
    for (int i = 0; i < pieces.count(); i++) {
      MemorySegment host = pieces.host(i);
      try {
        if (down) {
          CudaDriver.checkTarget(host);
        } else {
          CudaDriver.checkHost(host);
        }
        if (pieces.address(i) == 0 && host.byteSize() > 0) {
          throw Status.invalidValue("0 is no address of device memory");
        }
      } catch (DriverException e) {
        throw e.ofPiece(i, pieces.count());
      }
    }
  }

  /** The kernel's: where the table is, how many entries it has, which way. */
  private record Arguments(MemorySegment table, long pieces, boolean down)
      implements KernelArguments {
    @Override
    public int count() {
      return 3;
    }

    @Override
    public boolean isBuffer(int index) {
      return index == 0;
    }

    @Override
    public long bits(int index) {
      return switch (index) {
        case 0 -> table.address();
        case 1 -> pieces;
        default -> down ? 1 : 0;
      };
    }

    @Override
    public long bytes(int index) {
      return index == 0 ? table.byteSize() : Long.BYTES;
    }

    @Override
    public MemorySegment buffer(int index) {
      return table;
    }
  }
}
