import static org.lwjgl.cuda.CU.cuCtxSetCurrent;
import static org.lwjgl.cuda.CU.cuDeviceGetDefaultMemPool;
import static org.lwjgl.cuda.CU.cuDevicePrimaryCtxRetain;
import static org.lwjgl.cuda.CU.cuInit;
import static org.lwjgl.cuda.CU.cuLaunchKernel;
import static org.lwjgl.cuda.CU.cuMemAllocAsync;
import static org.lwjgl.cuda.CU.cuMemFreeAsync;
import static org.lwjgl.cuda.CU.cuMemPoolSetAttribute;
import static org.lwjgl.cuda.CU.cuModuleGetFunction;
import static org.lwjgl.cuda.CU.cuModuleLoadData;
import static org.lwjgl.cuda.CU.cuStreamCreate;
import static org.lwjgl.cuda.CU.cuStreamSynchronize;

import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import org.lwjgl.PointerBuffer;
import org.lwjgl.system.MemoryUtil;

/** {@code LwjglPeer IMAGE SCALE}: LWJGL's binding of the driver API. */
final class LwjglPeer extends JvmPeer {
  private static final int RELEASE_THRESHOLD = 4;

  private final PointerBuffer out = MemoryUtil.memAllocPointer(1);
  private final LongBuffer nanosArgument = MemoryUtil.memAllocLong(1);
  private final PointerBuffer arguments = MemoryUtil.memAllocPointer(1);
  private final long stream;
  private final long nop;
  private final long spin;

  private LwjglPeer(byte[] image) {
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(out, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(out.get(0)), "cuCtxSetCurrent");
    ByteBuffer text = MemoryUtil.memAlloc(image.length).put(0, image);
    check(cuModuleLoadData(out, text), "cuModuleLoadData");
    long module = out.get(0);
    nop = function(module, "nop");
    spin = function(module, "spin");
    check(cuStreamCreate(out, NON_BLOCKING), "cuStreamCreate");
    stream = out.get(0);
    check(cuDeviceGetDefaultMemPool(out, 0), "cuDeviceGetDefaultMemPool");
    LongBuffer all = MemoryUtil.memAllocLong(1).put(0, -1L);
    check(cuMemPoolSetAttribute(out.get(0), RELEASE_THRESHOLD, all), "cuMemPoolSetAttribute");
    arguments.put(0, MemoryUtil.memAddress(nanosArgument));
  }

  private long function(long module, String name) {
    check(cuModuleGetFunction(out, module, name), "cuModuleGetFunction");
    return out.get(0);
  }

  @Override
  void launch(long nanos) {
    nanosArgument.put(0, nanos);
    check(
        nanos == 0
            ? cuLaunchKernel(nop, 1, 1, 1, 1, 1, 1, 0, stream, null, null)
            : cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, null),
        "cuLaunchKernel");
  }

  @Override
  void synchronize() {
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  @Override
  void allocate() {
    check(cuMemAllocAsync(out, ALLOCATED_BYTES, stream), "cuMemAllocAsync");
    check(cuMemFreeAsync(out.get(0), stream), "cuMemFreeAsync");
  }

  public static void main(String[] words) throws Exception {
    new LwjglPeer(image(words[0])).measure(Integer.parseInt(words[1]));
  }
}
