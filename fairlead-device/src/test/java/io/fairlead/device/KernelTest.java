package io.fairlead.device;

import static io.fairlead.device.Param.F32;
import static io.fairlead.device.Param.F64;
import static io.fairlead.device.Param.I32;
import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.I8;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.device.spi.ModuleImage;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class KernelTest {
  private static final Grid GRID = Grid.of(10);
  private World world;

  @BeforeEach
  void open() {
    world = new World(FakeDriver.strict());
  }

  @AfterEach
  void close() {
    world.close();
  }

  @Test
  void argumentsReachTheDriverAsBitsAndAddresses() {
    Kernel kernel = world.kernel("all", F64, F32, I32, I64, I8, in(F64), out(F32), inOut(I32));
    world.context.stream();
    world.driver.forgetCalls();
    kernel.launch(
        GRID,
        1.5,
        -2.5f,
        -3,
        4L,
        (byte) -5,
        new FakeBuffer(4096, 80),
        new FakeBuffer(8192, 40),
        new FakeBuffer(12288, 40));
    assertThat(world.driver.calls())
        .containsExactly(
            "all("
                + Double.doubleToRawLongBits(1.5)
                + ":8, "
                + (Float.floatToRawIntBits(-2.5f) & 0xFFFF_FFFFL)
                + ":4, "
                + (-3 & 0xFFFF_FFFFL)
                + ":4, 4:8, 251:1, @4096:80, @8192:40, @12288:40)");
    assertThat(world.context.stats().launches()).isEqualTo(1);
  }

  @Test
  void operandsHearOfTheLaunchInOrder() {
    Kernel kernel = world.kernel("axpy", F64, in(F64), inOut(F64));
    FakeBuffer x = new FakeBuffer(1, 8);
    FakeBuffer y = new FakeBuffer(2, 8);
    kernel.launch(GRID, 1.0, x, y);
    kernel.launch(GRID, 1.0, x, y);
    assertThat(x.story())
        .containsExactly("acquire READ", "recorded READ 1", "acquire READ", "recorded READ 2");
    assertThat(y.story()).startsWith("acquire READ_WRITE", "recorded READ_WRITE 1");
  }

  @Test
  void aBufferThatIsMentionedTwiceIsAcquiredTwice() {
    Kernel kernel = world.kernel("square", in(F64), out(F64));
    FakeBuffer x = new FakeBuffer(1, 8);
    kernel.launch(GRID, x, x);
    assertThat(x.story())
        .containsExactly("acquire WRITE", "acquire READ", "recorded READ 1", "recorded WRITE 1");
  }

  @Test
  void operandsAreAcquiredInTheirOwnOrderAndPassedInTheArguments() {
    Kernel kernel = world.kernel("axpy", in(F64), inOut(F64));
    List<String> order = new ArrayList<>();
    FakeBuffer high = new FakeBuffer(9, 8).onAcquire(stream -> order.add("high"));
    FakeBuffer low = new FakeBuffer(3, 8).onAcquire(stream -> order.add("low"));
    world.context.stream();
    world.driver.forgetCalls();
    kernel.launch(GRID, high, low);
    assertThat(order).containsExactly("low", "high");
    assertThat(world.driver.calls()).containsExactly("axpy(@9:8, @3:8)");
  }

  @Test
  void aRefusedLaunchIsAbandonedByAllItsOperands() {
    Kernel kernel = world.kernel("axpy", F64, in(F64), inOut(F64));
    FakeBuffer x = new FakeBuffer(1, 8);
    FakeBuffer y = new FakeBuffer(2, 8);
    world.context.stream();
    world.driver.refuseNext(DriverCall.LAUNCH, DriverException.INVALID_VALUE, "INVALID_VALUE");
    assertThatThrownBy(() -> kernel.launch(GRID, 1.0, x, y)).isInstanceOf(DeviceException.class);
    assertThat(x.story()).containsExactly("acquire READ", "abandoned READ");
    assertThat(y.story()).containsExactly("acquire READ_WRITE", "abandoned READ_WRITE");
    assertThat(world.context.stats().launches()).isZero();
  }

  @Test
  void anOperandThatRefusesRollsBackThoseBeforeIt() {
    Kernel kernel = world.kernel("axpy", F64, in(F64), inOut(F64));
    FakeBuffer x = new FakeBuffer(1, 8);
    FakeBuffer closed =
        new FakeBuffer(2, 8)
            .onAcquire(
                stream -> {
                  throw new IllegalStateException("closed at Somewhere.java:7");
                });
    world.context.stream();
    world.driver.forgetCalls();
    assertThatThrownBy(() -> kernel.launch(GRID, 1.0, x, closed))
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("Somewhere.java:7");
    assertThat(x.story()).containsExactly("acquire READ", "abandoned READ");
    assertThat(closed.story()).isEmpty();
    assertThat(world.driver.calls()).isEmpty();
    kernel.launch(GRID, 1.0, x, x); // the turn is free again
  }

  @Test
  void anOperandMayEnqueueOnTheSameStreamFirst() {
    // how a spilled buffer comes back: its copy comes before the kernel that needs it
    Kernel kernel = world.kernel("use", in(F64), in(F64));
    FakeBuffer inner = new FakeBuffer(7, 8);
    FakeBuffer spilled =
        new FakeBuffer(9, 8).onAcquire(stream -> stream.fill(inner, 0, 8, (byte) 0));
    FakeBuffer x = new FakeBuffer(5, 8);
    world.context.stream();
    world.driver.forgetCalls();
    kernel.launch(GRID, x, spilled);
    assertThat(world.driver.calls()).containsExactly("fill 7", "use(@5:8, @9:8)");
    assertThat(inner.story()).contains("recorded WRITE 1");
    assertThat(spilled.story()).contains("recorded READ 2");
  }

  static Stream<Arguments> wrongArguments() {
    FakeBuffer buffer = new FakeBuffer(1, 8);
    return Stream.of(
        Arguments.of(
            new Object[] {1.0, buffer},
            "axpy(F64, in(F64), inOut(F64)) takes 3 arguments after the grid, but 2 came"),
        Arguments.of(
            new Object[] {1, buffer, buffer},
            "argument 1 is declared F64 and takes a double, but the Integer 1 came"),
        Arguments.of(
            new Object[] {1.0, 2.0, buffer},
            "argument 2 is declared in(F64) and takes a device buffer, but the Double 2.0 came"),
        Arguments.of(
            new Object[] {buffer, buffer, buffer},
            "argument 1 is declared F64 and takes a double, but a device buffer of 8 bytes came"),
        Arguments.of(
            new Object[] {1.0, null, buffer},
            "argument 2 is declared in(F64) and takes a device buffer, but null came"),
        Arguments.of(
            new Object[] {1.0, buffer, new double[3]},
            "argument 3 is declared inOut(F64) and takes a device buffer, but a [D came"),
        Arguments.of(
            new Object[] {1.0, buffer, new FakeBuffer(1, 12)},
            "takes a buffer of whole elements of 8 bytes, but a device buffer of 12 bytes came"));
  }

  @ParameterizedTest
  @MethodSource("wrongArguments")
  void wrongArgumentsAreNamed(Object[] args, String message) {
    Kernel kernel = world.kernel("axpy", F64, in(F64), inOut(F64));
    assertThatThrownBy(() -> kernel.launch(GRID, args))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining(message);
    assertThat(world.context.stats().operations()).isZero();
  }

  @Test
  void scalarsAreNotConverted() {
    Kernel kernel = world.kernel("k", I64, I32, F32, I8);
    assertThatThrownBy(() -> kernel.launch(GRID, 1, 1, 1f, (byte) 1))
        .hasMessageContaining("argument 1 is declared I64 and takes a long");
    assertThatThrownBy(() -> kernel.launch(GRID, 1L, 1L, 1f, (byte) 1))
        .hasMessageContaining("argument 2 is declared I32 and takes an int");
    assertThatThrownBy(() -> kernel.launch(GRID, 1L, 1, 1.0, (byte) 1))
        .hasMessageContaining("argument 3 is declared F32 and takes a float");
    assertThatThrownBy(() -> kernel.launch(GRID, 1L, 1, 1f, 1))
        .hasMessageContaining("argument 4 is declared I8 and takes a byte");
  }

  @Test
  void aKernelThatIsNotThereIsNamedWithThoseThatAre() {
    KernelModule module =
        world.context.load(ModuleSource.java("m", Map.of("axpy", (arguments, begin, end) -> {})));
    assertThatThrownBy(() -> module.kernel("apxy"))
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("find kernel apxy in module m")
        .hasMessageContaining("[axpy]");
    module.close();
  }

  @Test
  void aModuleWithNoImageForThisDriverIsRefused() {
    ModuleSource source =
        new ModuleSource(
            "m", List.of(new ModuleImage.Ptx("..."), new ModuleImage.CudaSource("m.cu", "...")));
    assertThatThrownBy(() -> world.context.load(source))
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("driver fake 1 accepts none of its images (PTX, CUDA source m.cu)");
  }

  @Test
  void theFirstImageThatTheDriverTakesIsLoaded() {
    ModuleSource source =
        new ModuleSource("m", List.of(new ModuleImage.Ptx("...")))
            .or(new ModuleImage.Java(Map.of("axpy", (arguments, begin, end) -> {})));
    try (KernelModule module = world.context.load(source)) {
      assertThat(module.kernel("axpy", F64).toString()).isEqualTo("axpy(F64)");
      assertThat(module.image()).isSameAs(source.images().getLast());
    }
  }

  @Test
  void aDeviceMayKnowNoResidentBlocks() {
    Kernel kernel = world.kernel("k");
    assertThatThrownBy(() -> kernel.residentBlocks(GRID))
        .isInstanceOf(DeviceException.class)
        .hasMessageContaining("resident blocks of k on device 0")
        .hasMessageContaining("fake has no blocks that are resident at once");
  }

  @Test
  void aGridHasLimits() {
    assertThatThrownBy(() -> GRID.withCluster(9)).hasMessageContaining("1 to 8 blocks, not 9");
    assertThatThrownBy(() -> GRID.withSharedBytes(-1)).hasMessageContaining("0 or more bytes");
    assertThat(Grid.of(1000).withBlock(100).blocks()).isEqualTo(10);
    assertThat(Grid.of(1001).withBlock(100).withCluster(4).blocks()).isEqualTo(12);
    assertThat(Grid.of(0).withCluster(4).blocks()).isZero();
    assertThat(Grid.of(Long.MAX_VALUE).withBlock(1).withCluster(8).blocks())
        .isGreaterThan(Long.MAX_VALUE - 8);
  }

  @Test
  void aClosedModulesKernelsAreRefusedAndItIsUnloadedAfterItsWork() {
    try (World stepped = new World(FakeDriver.stepped())) {
      KernelModule module =
          stepped.context.load(ModuleSource.java("m", Map.of("k", (arguments, begin, end) -> {})));
      Kernel kernel = module.kernel("k");
      kernel.launch(GRID);
      module.close();
      module.close();
      assertThatThrownBy(() -> kernel.launch(GRID))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("module m was closed");
      stepped.context.owner().call(() -> null).await(); // what was retired is done before that
      assertThat(stepped.driver.openModules()).isEqualTo(1);
      stepped.driver.automatic();
      World.until("it is unloaded", () -> stepped.driver.openModules() == 0);
    }
  }

  @Test
  void aKernelOfAnotherDeviceIsRefused() {
    Kernel kernel = world.kernel("k");
    try (World other = new World(FakeDriver.strict())) {
      assertThatThrownBy(() -> kernel.launch(other.context.stream(), GRID))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("was loaded on another device");
    }
  }

  @Test
  void bufferParametersTakeScalarNamesButNotBuffers() {
    assertThatThrownBy(() -> in(in(F64)))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("in(F64)");
  }
}
