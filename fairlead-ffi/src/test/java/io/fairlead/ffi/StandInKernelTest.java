package io.fairlead.ffi;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.ffi.StandInLibrary.Live;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The stand-in's modules, kernels, parameter layouts and launches. */
class StandInKernelTest extends StandInFixture {
  private static final int INVALID_IMAGE = 200;
  private static final int INVALID_PTX = 218;
  private static final int UNSUPPORTED_PTX_VERSION = 222;
  private static final int NOT_FOUND = 500;

  private double[] doubles(MemorySegment stream, long address, int count) {
    MemorySegment target = pinned(8L * count);
    ok("cuMemcpyDtoHAsync_v2", target, address, 8L * count, stream);
    ok("cuStreamSynchronize", stream);
    return target.toArray(ValueLayout.JAVA_DOUBLE);
  }

  private long upload(MemorySegment stream, double... values) {
    long address = allocate(stream, 8L * values.length);
    MemorySegment source = pinned(8L * values.length);
    source.copyFrom(MemorySegment.ofArray(values));
    ok("cuMemcpyHtoDAsync_v2", address, source, source.byteSize(), stream);
    return address;
  }

  // --- modules ------------------------------------------------------------------------------

  @Test
  void aModuleNamesItsKernels() {
    MemorySegment module = pointer("cuModuleLoadData", IMAGE);
    int count = (int) number("cuModuleGetFunctionCount", module);
    assertThat(count).isEqualTo(10);
    MemorySegment functions = arena.allocate(ValueLayout.ADDRESS, count);
    ok("cuModuleEnumerateFunctions", functions, count, module);
    for (int i = 0; i < count; i++) {
      MemorySegment name =
          pointer("cuFuncGetName", functions.getAtIndex(ValueLayout.ADDRESS, i)).reinterpret(64);
      assertThat(IMAGE).contains("kernel " + name.getString(0));
    }
    answers(NOT_FOUND, "cuModuleGetFunction", out(), module, "no_such_kernel");
    ok("cuModuleUnload", module);
    assertThat(standIn.live(Live.MODULES)).isZero();
    answers(INVALID_HANDLE, "cuFuncGetName", out(), functions.get(ValueLayout.ADDRESS, 0));
    trapped("stale handle");
  }

  @Test
  void parametersLieAtTheirNaturalAlignment() {
    MemorySegment axpy = kernel("axpy");
    long[] offsets = {0, 8, 16, 24};
    for (int i = 0; i < offsets.length; i++) {
      MemorySegment offset = out();
      MemorySegment size = out();
      ok("cuFuncGetParamInfo", axpy, (long) i, offset, size);
      assertThat(offset.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(offsets[i]);
      assertThat(size.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(8);
    }
    answers(INVALID_VALUE, "cuFuncGetParamInfo", axpy, 4L, out(), out());
    assertThat(number("cuFuncGetAttribute", 0, axpy)).isEqualTo(1024);
  }

  @ParameterizedTest
  @CsvSource({
    "200, something else, begins with",
    "218, //standin 1\\nkernel unheard_of n:i64\\n, no kernel 'unheard_of'",
    "218, //standin 1\\nkernel hold flag:i32\\n, no kernel 'hold' with types 'i'",
    "218, //standin 1\\nkernel hold flag:complex\\n, not a parameter: 'flag:complex'",
    "218, //standin 1\\nhold\\n, not a kernel: 'hold'",
    "218, .version 9.0, PTX without a .target",
    "222, .version 10.0\\n.target sm_90\\n, PTX of version 10",
    "218, .version 9.0\\n.target sm_100\\n.entry k() { ret; }, the .target is sm_100",
    "218, .version 9.0\\n.target sm_90\\n// .entry k(), without an entry"
  })
  void saysWhatIsWrongWithAnImage(int status, String image, String said) {
    MemorySegment log = arena.allocate(200);
    MemorySegment options = arena.allocateFrom(ValueLayout.JAVA_INT, 5, 6);
    MemorySegment values = arena.allocate(ValueLayout.ADDRESS, 2);
    values.setAtIndex(ValueLayout.ADDRESS, 0, log);
    values.setAtIndex(ValueLayout.ADDRESS, 1, MemorySegment.ofAddress(200));
    String text = image.replace("\\n", "\n");
    answers(status, "cuModuleLoadDataEx", out(), text, 2, options, values);
    assertThat(log.getString(0)).contains(said);
    assertThat(values.getAtIndex(ValueLayout.ADDRESS, 1).address())
        .isEqualTo(log.getString(0).length());
    answers(status, "cuModuleLoadData", out(), text);
    assertThat(status).isIn(INVALID_IMAGE, INVALID_PTX, UNSUPPORTED_PTX_VERSION);
  }

  @Test
  void anEmptyKernelInPtxRuns() {
    String ptx = ".version 9.0\n.target sm_90\n.visible .entry empty() { ret; }\n";
    MemorySegment empty = pointer("cuModuleGetFunction", pointer("cuModuleLoadData", ptx), "empty");
    MemorySegment stream = stream();
    assertThat(launch(stream, empty, 1, 1)).isZero();
    ok("cuStreamSynchronize", stream);
  }

  // --- launches -----------------------------------------------------------------------------

  @Test
  void aKernelComputes() {
    MemorySegment stream = stream();
    long x = upload(stream, 1, 2, 3);
    long y = upload(stream, 10, 20, 30);
    assertThat(launch(stream, kernel("axpy"), 1, 32, 3L, 2.0, x, y)).isZero();
    assertThat(doubles(stream, y, 3)).containsExactly(12, 24, 36);
  }

  @Test
  void aGridThatIsTooSmallDoesAPart() {
    MemorySegment stream = stream();
    long x = upload(stream, 1, 2, 3);
    long y = upload(stream, 10, 20, 30);
    assertThat(launch(stream, kernel("axpy"), 2, 1, 3L, 2.0, x, y)).isZero();
    assertThat(doubles(stream, y, 3)).containsExactly(12, 24, 30);
  }

  @Test
  void eachThreadOfTheGridCounts() {
    MemorySegment stream = stream();
    MemorySegment counter = pinned(8);
    assertThat(launch(stream, kernel("count"), 3, 64, counter)).isZero();
    ok("cuStreamSynchronize", stream);
    assertThat(counter.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(192);
  }

  @Test
  void argumentsAreCopiedAtTheLaunch() {
    MemorySegment stream = stream();
    MemorySegment slot = pinned(8);
    MemorySegment values = arguments(slot, 5L);
    MemorySegment flag64 = kernel("flag64");
    Held held = hold(stream);
    MemorySegment none = MemorySegment.NULL;
    ok("cuLaunchKernel", flag64, 1, 1, 1, 1, 1, 1, 0, stream, values, none);
    values.getAtIndex(ValueLayout.ADDRESS, 1).reinterpret(8).set(ValueLayout.JAVA_LONG, 0, 6);
    held.release();
    ok("cuStreamSynchronize", stream);
    assertThat(slot.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(5);
  }

  /** What cuLaunchKernel takes instead of pointers: one buffer and its size. */
  private MemorySegment extra(MemorySegment buffer, long size) {
    MemorySegment extra = arena.allocate(ValueLayout.JAVA_LONG, 5);
    extra.setAtIndex(ValueLayout.JAVA_LONG, 0, 1);
    extra.setAtIndex(ValueLayout.JAVA_LONG, 1, buffer.address());
    extra.setAtIndex(ValueLayout.JAVA_LONG, 2, 2);
    long sizeAt = arena.allocateFrom(ValueLayout.JAVA_LONG, size).address();
    extra.setAtIndex(ValueLayout.JAVA_LONG, 3, sizeAt);
    return extra;
  }

  @Test
  void oneBufferOfArguments() {
    MemorySegment stream = stream();
    MemorySegment slot = pinned(8);
    MemorySegment buffer = arena.allocateFrom(ValueLayout.JAVA_LONG, slot.address(), 8);
    MemorySegment flag64 = kernel("flag64");
    MemorySegment none = MemorySegment.NULL;
    Object[] shape = {flag64, 1, 1, 1, 1, 1, 1, 0, stream};
    assertThat(launchWith(shape, none, extra(buffer, 16))).isZero();
    ok("cuStreamSynchronize", stream);
    assertThat(slot.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(8);
    assertThat(launchWith(shape, none, extra(buffer, 8))).isEqualTo(INVALID_VALUE);
    assertThat(launchWith(shape, arguments(slot, 1L), extra(buffer, 16))).isEqualTo(INVALID_VALUE);
    assertThat(launchWith(shape, none, none)).isEqualTo(INVALID_VALUE);
  }

  private int launchWith(Object[] shape, MemorySegment parameters, MemorySegment extra) {
    Object[] all = Arrays.copyOf(shape, shape.length + 2);
    all[shape.length] = parameters;
    all[shape.length + 1] = extra;
    return standIn.call("cuLaunchKernel", all);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "0 1 1 1 1 1 0", "-1 1 1 1 1 1 0", "1 65536 1 1 1 1 0", "1 1 1 1025 1 1 0",
        "1 1 1 32 64 1 0", "1 1 1 1 1 65 0", "1 1 1 1 1 0 0", "1 1 1 1 1 1 49153"
      })
  void gridsHaveLimits(String shape) {
    Object[] numbers = Arrays.stream(shape.split(" ")).map(Integer::valueOf).toArray(Object[]::new);
    Object[] all = new Object[9];
    all[0] = kernel("nop");
    System.arraycopy(numbers, 0, all, 1, 7);
    all[8] = stream();
    assertThat(launchWith(all, MemorySegment.NULL, MemorySegment.NULL)).isEqualTo(INVALID_VALUE);
  }

  private MemorySegment config(int blocks, MemorySegment stream, int attribute, int... value) {
    MemorySegment attributes = arena.allocate(72, 8);
    attributes.set(ValueLayout.JAVA_INT, 0, attribute);
    for (int i = 0; i < value.length; i++) {
      attributes.set(ValueLayout.JAVA_INT, 8 + 4L * i, value[i]);
    }
    MemorySegment config = arena.allocate(56, 8);
    config.copyFrom(MemorySegment.ofArray(new int[] {blocks, 1, 1, 1, 1, 1, 0}));
    config.set(ValueLayout.ADDRESS, 32, stream);
    config.set(ValueLayout.ADDRESS, 40, attributes);
    config.set(ValueLayout.JAVA_INT, 48, 1);
    return config;
  }

  private int launchEx(MemorySegment config, MemorySegment kernel) {
    MemorySegment none = MemorySegment.NULL;
    return standIn.call("cuLaunchKernelEx", config, kernel, none, none);
  }

  @Test
  void launchAttributes() {
    MemorySegment stream = stream();
    MemorySegment nop = kernel("nop");
    assertThat(launchEx(config(132, stream, 2, 1), nop)).isZero();
    assertThat(launchEx(config(100_000, stream, 2, 1), nop)).isEqualTo(720);
    assertThat(launchEx(config(8, stream, 4, 4, 1, 1), nop)).isZero();
    assertThat(launchEx(config(8, stream, 4, 3, 1, 1), nop)).isEqualTo(INVALID_VALUE);
    assertThat(launchEx(config(16, stream, 4, 16, 1, 1), nop)).isEqualTo(912);
    assertThat(launchEx(config(1, stream, 99, 1), nop)).isEqualTo(801);
    standIn.attribute(95, 0);
    standIn.attribute(120, 0);
    assertThat(launchEx(config(132, stream, 2, 1), nop)).isEqualTo(801);
    assertThat(launchEx(config(8, stream, 4, 4, 1, 1), nop)).isEqualTo(801);
    ok("cuStreamSynchronize", stream);
  }

  /** A block's threads and shared memory say how many of them a multiprocessor holds. */
  @Test
  void residentBlocks() {
    MemorySegment nop = kernel("nop");
    String occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
    assertThat((int) number(occupancy, nop, 1024, 0L)).isEqualTo(2);
    assertThat((int) number(occupancy, nop, 32, 0L)).isEqualTo(32);
    assertThat((int) number(occupancy, nop, 32, 100_000L)).isEqualTo(2);
    answers(INVALID_VALUE, occupancy, out(), nop, 2048, 0L);
  }

  @Test
  void moreSharedMemoryHasToBeAskedFor() {
    MemorySegment stream = stream();
    MemorySegment nop = kernel("nop");
    MemorySegment config = config(1, stream, 0);
    config.set(ValueLayout.JAVA_INT, 24, 100_000);
    assertThat(launchEx(config, nop)).isEqualTo(INVALID_VALUE);
    answers(INVALID_VALUE, "cuFuncSetAttribute", nop, 8, 1 << 20);
    ok("cuFuncSetAttribute", nop, 8, 100_000);
    assertThat(launchEx(config, nop)).isZero();
    assertThat((int) number("cuFuncGetAttribute", 8, nop)).isEqualTo(100_000);
    ok("cuStreamSynchronize", stream);
  }

  @Test
  void kernelsReachNoFurtherThanTheirMemory() {
    MemorySegment stream = stream();
    long x = upload(stream, 1, 2, 3);
    assertThat(launch(stream, kernel("axpy"), 1, 32, 4L, 2.0, x, x)).isZero();
    answers(ILLEGAL_ADDRESS, "cuStreamSynchronize", stream);
  }

  @Test
  void kernelsDoNotReachAnotherDevice() {
    long here = allocate(stream(), 8);
    under(
        otherContext(),
        () -> {
          MemorySegment foreign = stream();
          assertThat(launch(foreign, kernel("count"), 1, 1, here)).isZero();
          trapped("wrong context");
          answers(ILLEGAL_ADDRESS, "cuStreamSynchronize", foreign);
        });
  }

  @Test
  void aKernelBelongsToItsContext() {
    MemorySegment nop = kernel("nop");
    under(otherContext(), () -> assertThat(launch(stream(), nop, 1, 1)).isEqualTo(INVALID_HANDLE));
    trapped("wrong context");
  }
}
