import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;

/**
 * What launches, waits and allocations cost with another JVM library: a peer of "fairlead bench
 * cuda", measured as in baseline.c. Waits are those that the driver chooses by itself, which spin
 * where there are processors enough.
 */
abstract class JvmPeer {
  static final int NON_BLOCKING = 1;
  static final long ALLOCATED_BYTES = 4096;

  private static final int BATCH = 200;
  private static final long WARM_UP_NANOS = 1_500_000_000L;

  abstract void launch(long nanos);

  abstract void synchronize();

  /** Allocates and frees, in the order of the stream. */
  abstract void allocate();

  /** The text of the kernels, with the zero at its end that the driver looks for. */
  static byte[] image(String file) throws Exception {
    byte[] text = Files.readAllBytes(Path.of(file));
    return java.util.Arrays.copyOf(text, text.length + 1);
  }

  static void check(int status, String what) {
    if (status != 0) {
      throw new IllegalStateException(what + " failed with status " + status);
    }
  }

  final void measure(int scale) {
    waits("wait.0", 0, Math.max(5, 4000 / scale), scale);
    waits("wait.20", 20_000, Math.max(5, 3000 / scale), scale);
    allocations(Math.max(5, 300 / scale), scale);
  }

  private void waits(String name, long nanos, int rounds, int scale) {
    long end = System.nanoTime() + WARM_UP_NANOS / scale;
    while (System.nanoTime() < end) {
      launchAndWait(nanos);
    }
    double[] samples = new double[rounds];
    for (int i = 0; i < rounds; i++) {
      long start = System.nanoTime();
      launchAndWait(nanos);
      samples[i] = System.nanoTime() - start;
    }
    print(name, samples);
  }

  private void launchAndWait(long nanos) {
    launch(nanos);
    synchronize();
  }

  private void allocations(int rounds, int scale) {
    long end = System.nanoTime() + WARM_UP_NANOS / scale;
    while (System.nanoTime() < end) {
      batch();
    }
    double[] samples = new double[rounds];
    for (int i = 0; i < rounds; i++) {
      samples[i] = batch();
    }
    print("alloc", samples);
  }

  private double batch() {
    long start = System.nanoTime();
    for (int i = 0; i < BATCH; i++) {
      allocate();
    }
    double each = (System.nanoTime() - start) / (double) BATCH;
    synchronize();
    return each;
  }

  private static void print(String name, double[] samples) {
    StringBuilder line = new StringBuilder("samples " + name);
    for (double each : samples) {
      line.append(String.format(Locale.ROOT, " %.6g", each));
    }
    System.out.println(line);
  }
}
