package io.fairlead.cli.join;

import static io.fairlead.device.Param.I32;
import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;

import io.fairlead.device.Kernel;
import io.fairlead.device.KernelModule;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import io.fairlead.memory.Device;
import java.util.List;

/**
 * The kernels of the join, loaded on one device. They exist twice with the same parameters: as
 * {@link JavaJoinKernels} for the host device, and as {@link CudaJoinKernels} for a GPU.
 *
 * <p><b>Rows</b> are words, the key first. <b>A table</b> has {@code capacity + 1} entries as those
 * of {@link Groups}: a key is in the first free entry from its slot on, and an entry is free while
 * its key is {@link #FREE}. A row whose own key is that has the last entry to itself.
 *
 * <p>Threads: any. Immutable once loaded; {@link #close} unloads the module.
 */
final class JoinKernels implements AutoCloseable {
  static final String COUNT = "countRows";
  static final String SCATTER = "scatterRows";
  static final String CLEAR = "clearTable";
  static final String BUILD = "buildTable";
  static final String PROBE = "probeTable";
  static final String COLLECT = "collectGroups";

  /** The key of an entry without one. */
  static final long FREE = Long.MIN_VALUE;

  /** Counters of a table: entries that are taken. */
  static final int TAKEN = 0;

  /** … not 0 once a row found no entry: the table is of no use then. */
  static final int OVERFLOWED = 1;

  /** … groups that were collected. */
  static final int COLLECTED = 2;

  /** How many counters there are. */
  static final int COUNTERS = 3;

  /** The most partitions: a block of the GPU counts them in shared memory. */
  static final int PARTITION_BITS_MAX = 10;

  /** Rows of a GPU's block that are scattered together. */
  static final int TILE_ROWS = 2048;

  /** Threads of such a block. */
  static final int TILE_THREADS = 256;

  /** Rows worth a worker of the host device: some ten microseconds. */
  private static final int ROWS_PER_PIECE = 4096;

  private static final String NAME = "fairlead-join";

  private static final ModuleImage JAVA = new ModuleImage.Java(JavaJoinKernels.ALL);

  private final KernelModule module;
  private final boolean isJava;

  /** {@code (rows, n, words, bits, inOut counts)}: adds how many rows each partition gets. */
  final Kernel count;

  /** {@code (rows, n, words, bits, inOut next, out sorted)}: to where {@code next} says. */
  final Kernel scatter;

  /** {@code (out table, capacity, stride)}. */
  final Kernel clear;

  /** {@code (rows, n, words, bits, inOut table, capacity, stride, probesMax, inOut counters)}. */
  final Kernel build;

  /** {@code (rows, n, words, bits, inOut table, capacity, stride)}: where the key is known. */
  final Kernel probe;

  /** {@code (table, capacity, stride, inOut counters, out groups)}: those with rows of both. */
  final Kernel collect;

  private JoinKernels(KernelModule module, boolean isJava) {
    this.module = module;
    this.isJava = isJava;
    count = module.kernel(COUNT, in(I64), I32, I32, I32, inOut(I64));
    scatter = module.kernel(SCATTER, in(I64), I32, I32, I32, inOut(I64), out(I64));
    clear = module.kernel(CLEAR, out(I64), I64, I32);
    build = module.kernel(BUILD, in(I64), I32, I32, I32, inOut(I64), I64, I32, I64, inOut(I64));
    probe = module.kernel(PROBE, in(I64), I32, I32, I32, inOut(I64), I64, I32);
    collect = module.kernel(COLLECT, in(I64), I64, I32, inOut(I64), out(I64));
  }

  /** Loads them. Blocks its task while the driver loads the module. */
  static JoinKernels load(Device device) {
    boolean isJava = runInJava(device);
    List<ModuleImage> images = isJava ? List.of(JAVA) : CudaJoinKernels.images();
    return new JoinKernels(device.load(new ModuleSource(NAME, images)), isJava);
  }

  /** Whether this device runs kernels that are Java methods: it is the embedded one. */
  static boolean runInJava(Device device) {
    return device.context().driver().accepts(JAVA);
  }

  /** In which form they were loaded: {@code prebuilt machine code}. */
  String form() {
    return switch (module.image()) {
      case ModuleImage.Java _ -> "in Java";
      case ModuleImage.Binary _ -> "prebuilt machine code";
      case ModuleImage.CudaSource source -> "compiled here from " + source.fileName();
      case ModuleImage.Ptx _ -> "prebuilt PTX, compiled by the driver";
    };
  }

  /** A work item for each row or entry. */
  Grid each(long items) {
    return Grid.of(items).withGrain(ROWS_PER_PIECE);
  }

  /** For kernels that count partitions: a block of a GPU takes a tile of rows. */
  Grid tiles(int rows) {
    return isJava ? each(rows) : gpuTiles(rows);
  }

  static Grid gpuTiles(int rows) {
    long tiles = Math.ceilDiv(rows, TILE_ROWS);
    return Grid.of(tiles * TILE_THREADS).withBlock(TILE_THREADS);
  }

  @Override
  public void close() {
    module.close();
  }
}
