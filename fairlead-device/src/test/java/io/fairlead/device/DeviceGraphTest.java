package io.fairlead.device;

import static io.fairlead.device.Param.I64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static io.fairlead.device.Param.out;
import static io.fairlead.device.World.work;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.task.Completion;
import io.fairlead.task.TaskScope;
import io.fairlead.task.WaitMode;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Graphs of a device, on a driver that writes down what it is asked, and what it must not be. */
@Timeout(60)
class DeviceGraphTest {
  private static final Operand[] NONE = {};
  private static final Access[] NO_ACCESS = {};

  private static void refused(String advice, Runnable call) {
    assertThatThrownBy(call::run)
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("captured")
        .hasMessageContaining(advice);
  }

  private static void nothingForbiddenWasAsked(World world) {
    assertThat(world.driver.calls()).noneMatch(call -> call.startsWith("forbidden"));
  }

  private static void untilNoGraphIsLeft(World world) {
    World.until("graphs are gone", () -> world.driver.openGraphs() == 0);
  }

  // --- capture ----------------------------------------------------------------------------------

  @Test
  void whatIsCapturedRunsAsOneOperationAtEachLaunch() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream stream = world.context.openStream(0)) {
      work(stream, "before");
      Kernel kernel = world.kernel("k", in(I64), inOut(I64));
      FakeBuffer x = new FakeBuffer(1_000, 64);
      FakeBuffer y = new FakeBuffer(2_000, 64);
      try (DeviceGraph graph =
          stream.capture(
              "g",
              () -> {
                kernel.launch(stream, Grid.of(8), x, y);
                stream.fill(y, 0, 64, (byte) 0);
                assertThat(stream.isCaptured()).isTrue();
                assertThat(stream.enqueue(DriverCall.LAUNCH, "plain", (handle, none) -> {}))
                    .isEqualTo(-1);
              })) {
        assertThat(stream.isCaptured()).isFalse();
        stream.reached().await();
        assertThat(world.driver.ended()).containsExactly("before");
        assertThat(stream.mark().sequence()).isEqualTo(1);
        Mark first = graph.launch(stream);
        assertThat(first.sequence()).as("with room for three").isEqualTo(4);
        graph.launch(stream);
        stream.reached().await();
        String all = "[k(@1000:64, @2000:64), fill 2000]";
        assertThat(world.driver.ended()).containsExactly("before", all, all);
        assertThat(x.story())
            .containsExactly(
                "hold", "acquire READ", "recorded READ 4", "acquire READ", "recorded READ 7");
        assertThat(y.story()).contains("hold", "acquire READ_WRITE", "recorded READ_WRITE 4");
      }
      untilNoGraphIsLeft(world);
      World.until("it is let go", () -> x.story().getLast().equals("let go"));
      assertThat(y.story()).last().isEqualTo("let go");
      assertThat(y.story()).filteredOn("hold"::equals).as("once").hasSize(1);
      DeviceStats stats = world.context.stats();
      assertThat(stats.operations()).as("a launch of a graph is one").isEqualTo(3);
      assertThat(stats.launches() + stats.copies()).isZero();
      assertThat(stats.leaks()).isZero();
      nothingForbiddenWasAsked(world);
    }
  }

  @Test
  void whatCannotBePartOfAGraphIsRefusedWithAdvice() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream stream = world.context.openStream(0);
        DeviceStream other = world.context.openStream(0)) {
      DeviceGraph inner = stream.capture("inner", () -> {});
      work(other, "work");
      Mark elsewhere = other.mark();
      try (DeviceGraph graph =
          stream.capture(
              "outer",
              () -> {
                refused("launch the graph, and wait for that", stream::reached);
                refused("launch the graph, and wait for that", stream::mark);
                refused("launch the graph, and wait for that", stream::foreignMark);
                refused("launch the graph, and wait for that", stream::checkpoint);
                refused("before the capture", () -> stream.after(elsewhere));
                refused("one graph after the other", () -> inner.launch(stream));
                refused("task 'root' for graph 'outer'", () -> stream.capture("again", () -> {}));
                for (DriverCall call : List.of(DriverCall.ALLOC_ASYNC, DriverCall.FREE_ASYNC)) {
                  refused(
                      "before the capture",
                      () -> stream.enqueue(call, "memory", NONE, NO_ACCESS, (handle, none) -> {}));
                }
              })) {
        assertThat(graph.name()).isEqualTo("outer");
      }
      inner.close();
      nothingForbiddenWasAsked(world);
    }
  }

  /** Who records a checkpoint late, of an earlier position, takes nothing from a capture. */
  @Test
  void whatCameBeforeACaptureIsKeptAlsoBesideALateCheckpoint() throws Exception {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream stream = world.context.openStream(0);
        DeviceStream other = world.context.openStream(0)) {
      work(stream, "one");
      CountDownLatch inside = new CountDownLatch(1);
      CountDownLatch goOn = new CountDownLatch(1);
      world.driver.beforeNextRecord(() -> hold(inside, goOn));
      Thread late = Thread.ofPlatform().start(stream::checkpoint);
      inside.await();
      for (int i = 1; i < StreamCore.CHECKPOINTS; i++) {
        stream.checkpoint();
      }
      work(stream, "two");
      Mark two = stream.mark();
      AtomicReference<Throwable> failed = new AtomicReference<>();
      Thread capturer =
          Thread.ofPlatform()
              .uncaughtExceptionHandler((_, e) -> failed.set(e))
              .start(() -> stream.capture("g", () -> other.after(two)).close());
      World.until("it shuts the door", () -> isIn(capturer, StreamDoor.class, "close"));
      goOn.countDown();
      capturer.join();
      late.join();
      assertThat(failed).hasValue(null);
      work(other, "three");
      world.driver.endOne(other);
      assertThat(world.driver.ended()).isEmpty();
      nothingForbiddenWasAsked(world);
    }
  }

  private static void hold(CountDownLatch inside, CountDownLatch goOn) {
    inside.countDown();
    boolean interrupted = false;
    while (goOn.getCount() > 0) {
      try {
        goOn.await();
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    assertThat(interrupted).isFalse();
  }

  private static boolean isIn(Thread thread, Class<?> type, String method) {
    return Stream.of(thread.getStackTrace())
        .anyMatch(
            each ->
                each.getClassName().equals(type.getName()) && each.getMethodName().equals(method));
  }

  @Test
  void othersDoNotGetIntoACapture() throws Exception {
    try (World world = new World(FakeDriver.strict());
        DeviceStream stream = world.context.openStream(0)) {
      AtomicReference<Throwable> thrown = new AtomicReference<>();
      stream
          .capture(
              "g",
              () -> {
                try (TaskScope<Void> scope = world.tasks.scope()) {
                  scope.fork(
                      () -> {
                        thrown.set(catchThrowable(() -> work(stream, "intruder")));
                        return null;
                      });
                  scope.join();
                } catch (Exception e) {
                  throw new AssertionError(e);
                }
              })
          .close();
      assertThat(thrown.get())
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("use another stream");
      work(stream, "afterwards");
      stream.reached().await();
      assertThat(world.driver.ended()).containsExactly("afterwards");
    }
  }

  /** Nothing may be asked of the stream meanwhile, and nothing has to. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void whoWaitsForWorkOfBeforeIsToldDuringTheCapture(boolean notifies) {
    FakeDriver driver = notifies ? FakeDriver.stepped() : FakeDriver.polled();
    try (World world = new World(driver);
        DeviceStream stream = world.context.openStream(0);
        DeviceStream other = world.context.openStream(0)) {
      work(stream, "before");
      Mark before = stream.mark();
      stream
          .capture(
              "g",
              () -> {
                work(stream, "captured");
                driver.forgetCalls();
                Completion<Void> reached = stream.reached(before);
                other.after(before);
                work(other, "other");
                assertThat(driver.calls())
                    .doesNotContain("eventRecord")
                    .contains("streamWaitEvent");
                driver.endOne(other);
                assertThat(driver.ended()).isEmpty();
                driver.endOne(stream);
                reached.await();
                assertThat(driver.ended()).containsExactly("before", "other");
              })
          .close();
      nothingForbiddenWasAsked(world);
    }
  }

  /** Those who ask without the turn are kept out, whenever they come. */
  @Test
  void capturesAndAskersDoNotMeet() throws Exception {
    try (World world = new World(FakeDriver.strict().quiet());
        DeviceStream stream = world.context.openStream(0);
        DeviceStream other = world.context.openStream(0)) {
      AtomicReference<Mark> latest = new AtomicReference<>(stream.mark());
      AtomicBoolean over = new AtomicBoolean();
      CountDownLatch asked = new CountDownLatch(3);
      List<Thread> askers = new ArrayList<>();
      CompletableFuture<Throwable> wrong = new CompletableFuture<>();
      for (int i = 0; i < 3; i++) {
        int which = i;
        askers.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      try {
                        while (!over.get()) {
                          ask(which, stream, other, latest.get());
                          asked.countDown();
                        }
                      } catch (Throwable t) {
                        wrong.complete(t);
                      }
                    }));
      }
      asked.await();
      for (int round = 0; round < 80; round++) {
        work(stream, "work");
        latest.set(stream.mark());
        stream.capture("g", () -> work(stream, "captured")).close();
      }
      over.set(true);
      for (Thread asker : askers) {
        asker.join();
      }
      assertThat(wrong).isNotDone();
      stream.reached().await();
      nothingForbiddenWasAsked(world);
    }
  }

  /** He would end the capture; whoever comes later parks instead. */
  @Test
  void aCaptureWaitsForWhoWaitsInsideTheDriver() throws Exception {
    FakeDriver driver = FakeDriver.polled();
    try (World world = new World(driver);
        DeviceStream stream = world.context.openStream(0)) {
      work(stream, "before");
      Mark before = stream.mark();
      Thread inside =
          Thread.ofPlatform().start(() -> stream.reached(before).await(WaitMode.BLOCKING));
      World.until("he is inside", () -> driver.count("streamSynchronize") > 0);
      CompletableFuture<DeviceGraph> captured = new CompletableFuture<>();
      Thread capturing =
          Thread.ofPlatform()
              .start(
                  () ->
                      captured.complete(
                          stream.capture(
                              "g",
                              () -> {
                                stream.reached(before).await(WaitMode.BLOCKING);
                                work(stream, "captured");
                              })));
      World.until("it waits", () -> capturing.getState() != Thread.State.RUNNABLE);
      assertThat(driver.count("beginCapture")).isZero();
      driver.endOne(stream);
      captured.join().close();
      inside.join();
      nothingForbiddenWasAsked(world);
    }
  }

  private static void ask(int how, DeviceStream stream, DeviceStream other, Mark mark) {
    switch (how) {
      case 0 -> stream.reached(mark).await();
      case 1 -> other.after(mark);
      default -> {
        try {
          stream.checkpoint();
        } catch (IllegalStateException e) {
          assertThat(e).hasMessageContaining("captured");
        }
      }
    }
  }

  @Test
  void whatTheBodyThrowsEndsTheCapture() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream stream = world.context.openStream(0)) {
      FakeBuffer buffer = new FakeBuffer(1_000, 64);
      assertThatThrownBy(
              () ->
                  stream.capture(
                      "g",
                      () -> {
                        stream.fill(buffer, 0, 64, (byte) 0);
                        throw new ArithmeticException("of the body");
                      }))
          .isInstanceOf(ArithmeticException.class)
          .hasNoSuppressedExceptions();
      assertThat(buffer.story()).containsExactly("hold", "let go");
      assertThat(stream.isCaptured()).isFalse();
      work(stream, "afterwards");
      stream.reached().await();
      assertThat(world.driver.ended()).containsExactly("afterwards");
      untilNoGraphIsLeft(world);
    }
  }

  @Test
  void aCaptureThatTheDriverRefusesLeavesNothingBehind() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream stream = world.context.openStream(0)) {
      FakeBuffer buffer = new FakeBuffer(1_000, 64);
      Runnable body = () -> stream.fill(buffer, 0, 64, (byte) 0);
      world.driver.refuseNext(
          DriverCall.CAPTURE, DriverException.CAPTURE_UNSUPPORTED, "CAPTURE_UNSUPPORTED");
      assertThatThrownBy(() -> stream.capture("g", body)).isInstanceOf(DeviceException.class);
      assertThat(buffer.story()).isEmpty();
      Runnable spoilt =
          () -> {
            body.run();
            world.driver.refuseNext(
                DriverCall.CAPTURE, DriverException.CAPTURE_INVALIDATED, "INVALIDATED");
          };
      assertThatThrownBy(() -> stream.capture("g", spoilt))
          .isInstanceOf(DeviceException.class)
          .hasMessageContaining("INVALIDATED (901)");
      assertThat(buffer.story()).containsExactly("hold", "let go");
      Runnable unmade =
          () -> {
            body.run();
            world.driver.refuseNext(DriverCall.GRAPH_BUILD, DriverException.OUT_OF_MEMORY, "FULL");
          };
      assertThatThrownBy(() -> stream.capture("g", unmade))
          .isInstanceOf(OutOfDeviceMemoryException.class);
      assertThat(buffer.story()).containsExactly("hold", "let go", "hold", "let go");
      work(stream, "afterwards");
      stream.reached().await();
      assertThat(world.driver.ended()).containsExactly("afterwards");
    }
  }

  @Test
  void aStreamThatIsClosedMeanwhileGoesAfterTheCapture() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.openStream(0);
      int open = world.driver.openStreams();
      DeviceGraph graph =
          stream.capture(
              "g",
              () -> {
                work(stream, "captured");
                stream.close();
                world.context.owner().call(() -> true).await(); // it has looked at the stream
                assertThat(world.driver.openStreams()).isEqualTo(open);
              });
      World.until("the stream is gone", () -> world.driver.openStreams() == open - 1);
      graph.launch(world.context.stream());
      world.context.stream().reached().await();
      assertThat(world.driver.ended()).containsExactly("[captured]");
      graph.close();
    }
  }

  // --- of a task's own stream -------------------------------------------------------------------

  /** With one stream for all tasks: a capture has one that nobody shares. */
  @Test
  void aTaskCapturesOnAStreamOfItsOwn() {
    DeviceConfig config = DeviceConfig.defaults().withStreamsMax(1);
    try (World world = new World(FakeDriver.strict(), config)) {
      Kernel kernel = world.kernel("k");
      String told =
          world.tasks.enter(
              "capturing",
              0,
              () -> {
                DeviceStream mine = world.context.stream();
                DeviceGraph graph =
                    world.context.capture(
                        "g",
                        stream -> {
                          assertThat(world.context.stream()).isSameAs(stream).isNotSameAs(mine);
                          kernel.launch(Grid.of(1));
                          eagerly(world, () -> kernel.launch(Grid.of(1)));
                          assertThatThrownBy(() -> world.context.capture("h", _ -> {}))
                              .isInstanceOf(IllegalStateException.class)
                              .hasMessageContaining("capturing already");
                        });
                assertThat(world.context.stream()).isSameAs(mine);
                mine.reached().await();
                graph.launch();
                mine.reached().await();
                graph.close();
                assertThatThrownBy(() -> mine.capture("h", () -> {}))
                    .isInstanceOf(IllegalStateException.class)
                    .hasMessageContaining("context.capture");
                return String.join(" ", world.driver.ended());
              });
      assertThat(told).isEqualTo("k() [k()]");
      nothingForbiddenWasAsked(world);
    }
  }

  private static void eagerly(World world, Runnable body) {
    try (TaskScope<Void> scope = world.tasks.scope()) {
      scope.fork(
          () -> {
            body.run();
            return null;
          });
      scope.join();
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void threadsThatNeverEnteredAreToldWhatToDo() {
    try (World world = new World(FakeDriver.strict())) {
      assertThatThrownBy(() -> world.context.capture("g", _ -> {}))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("openStream(0).capture");
      assertThatThrownBy(() -> world.context.stream().capture("g", () -> {}))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("openStream");
      DeviceStream adopted = world.context.adoptStream(world.driver.foreignStream());
      assertThatThrownBy(() -> adopted.capture("g", () -> {}))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("adopted");
    }
  }

  @Test
  void aDriverWithoutGraphsSaysSo() {
    try (World world = new World(FakeDriver.strict().withoutGraphs());
        DeviceStream stream = world.context.openStream(0)) {
      for (Runnable call :
          List.<Runnable>of(
              () -> stream.capture("g", () -> {}), () -> world.context.buildGraph("g"))) {
        assertThatThrownBy(call::run)
            .isInstanceOf(DeviceException.class)
            .hasMessageContaining("driver fake 1 has no graphs")
            .hasMessageContaining("NOT_SUPPORTED (801)");
      }
    }
  }

  // --- launches and the end ---------------------------------------------------------------------

  @Test
  void launchesFollowEachOtherAcrossStreams() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream a = world.context.openStream(0);
        DeviceStream b = world.context.openStream(0)) {
      try (DeviceGraph graph = a.capture("g", () -> work(a, "captured"))) {
        graph.launch(a);
        graph.launch(b);
        world.driver.endOne(b);
        assertThat(world.driver.ended()).isEmpty();
        world.driver.endOne(a);
        assertThat(world.driver.ended()).containsExactly("[captured]", "[captured]");
        assertThat(world.context.stats().edges()).isEqualTo(1);
      }
    }
  }

  /** A driver blocks a launch when a thousand operations are unfinished; a task parks before. */
  @Test
  void aLaunchTakesTheRoomOfItsOperations() throws Exception {
    DeviceConfig config = DeviceConfig.defaults().withUnfinishedMax(8);
    try (World world = new World(FakeDriver.stepped(), config);
        DeviceStream stream = world.context.openStream(0)) {
      DeviceGraph three =
          stream.capture(
              "three",
              () -> {
                for (int i = 0; i < 3; i++) {
                  work(stream, "captured");
                }
              });
      for (int i = 0; i < 3; i++) {
        three.launch(stream);
      }
      Thread fourth = Thread.ofPlatform().start(() -> three.launch(stream));
      World.until("it parks", () -> fourth.getState() == Thread.State.WAITING);
      assertThat(stream.mark().sequence()).isEqualTo(9);
      world.driver.endOne(stream);
      fourth.join();
      assertThat(stream.mark().sequence()).isEqualTo(12);
      world.driver.endAll();
      three.close();
    }
  }

  @Test
  void aGraphAndItsModuleGoAfterItsLastLaunch() {
    try (World world = new World(FakeDriver.stepped());
        DeviceStream stream = world.context.openStream(0)) {
      KernelModule module =
          world.context.load(
              ModuleSource.java("m", java.util.Map.of("k", (arguments, begin, end) -> {})));
      Kernel kernel = module.kernel("k");
      FakeBuffer buffer = new FakeBuffer(1_000, 64);
      DeviceGraph graph =
          stream.capture(
              "g",
              () -> {
                kernel.launch(stream, Grid.of(1));
                stream.fill(buffer, 0, 64, (byte) 0);
              });
      module.close();
      world.context.owner().call(() -> true).await();
      assertThat(world.driver.openModules()).as("held by the graph").isEqualTo(1);
      graph.launch(stream);
      graph.close();
      graph.close();
      assertThatThrownBy(() -> graph.launch(stream))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("graph 'g' was closed");
      world.context.owner().call(() -> true).await();
      assertThat(world.driver.openGraphs()).as("its launch has not ended").isEqualTo(1);
      assertThat(buffer.story()).doesNotContain("let go");
      world.driver.endAll();
      World.until("the module is gone", () -> world.driver.openModules() == 0);
      assertThat(world.driver.openGraphs()).isZero();
      assertThat(buffer.story()).last().isEqualTo("let go");
      assertThat(world.context.stats().leaks()).isZero();
    }
  }

  @Test
  void aDroppedGraphIsClosedAndReported() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream stream = world.context.openStream(0)) {
      drop(stream);
      World.until(
          "the dropped graph is destroyed",
          () -> {
            System.gc();
            return world.driver.openGraphs() == 0;
          });
      assertThat(world.context.stats().leaks()).isEqualTo(1);
    }
  }

  private static void drop(DeviceStream stream) {
    stream.capture("dropped", () -> work(stream, "captured")).launch(stream);
  }

  @Test
  void theContextClosesWhatIsLeft() {
    World world = new World(FakeDriver.strict());
    FakeBuffer held = new FakeBuffer(1_000, 64);
    FakeBuffer given = new FakeBuffer(2_000, 64);
    try (world;
        DeviceStream stream = world.context.openStream(0)) {
      DeviceGraph early = stream.capture("early", () -> stream.fill(given, 0, 64, (byte) 0));
      world.context.closeGraphs().await();
      assertThat(given.story()).last().isEqualTo("let go");
      assertThatThrownBy(() -> early.launch(stream)).hasMessageContaining("closed");
      DeviceGraph left = stream.capture("left", () -> stream.fill(held, 0, 64, (byte) 0));
      left.launch(stream);
    }
    assertThat(world.driver.openGraphs()).isZero();
    assertThat(held.story()).last().isEqualTo("let go");
    assertThat(world.context.stats().leaks()).isEqualTo(2);
  }

  // --- by nodes ---------------------------------------------------------------------------------

  @Test
  void nodesFollowTheirData() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream stream = world.context.openStream(0);
        Arena arena = Arena.ofConfined()) {
      Kernel add = world.kernel("add", in(I64), in(I64), out(I64));
      FakeBuffer x = new FakeBuffer(1_000, 64);
      FakeBuffer y = new FakeBuffer(2_000, 64);
      FakeBuffer z = new FakeBuffer(3_000, 64);
      MemorySegment host = arena.allocate(128);
      DeviceGraph graph;
      try (GraphBuilder builder = world.context.buildGraph("g")) {
        builder.copyToDevice(x, 0, host.asSlice(0, 64)); // 0
        builder.fill(y, 0, 64, (byte) 1); // 1
        builder.launch(add, Grid.of(8), x, y, z); // 2
        builder.launch(add, Grid.of(8), y, y, x); // 3: writes what 2 reads
        builder.copyToHost(host.asSlice(32, 64), z, 0); // 4: writes what 0 reads
        GraphBuilder.Node apart = builder.copyOnDevice(y, 0, z, 0, 64); // 5
        builder.join(apart).after(apart); // 6
        graph = builder.build();
        assertThatThrownBy(() -> builder.fill(x, 0, 8, (byte) 0))
            .isInstanceOf(IllegalStateException.class)
            .hasMessageContaining("take a new one");
      }
      graph.launch(stream);
      stream.reached().await();
      assertThat(world.driver.ended())
          .containsExactly(
              List.of(
                      "copyToDevice 1000",
                      "fill 2000",
                      "add after [0, 1]",
                      "add after [1, 0, 2]",
                      "copyToHost 3000 after [2, 0]",
                      "copyOnDevice 2000 3000 after [1, 2, 3]",
                      "empty after [5]")
                  .toString());
      assertThat(x.story()).contains("acquire READ_WRITE").doesNotContain("let go");
      assertThat(z.story()).contains("acquire READ_WRITE");
      graph.close();
      untilNoGraphIsLeft(world);
    }
  }

  @Test
  void aBuilderThatBuildsNothingLetsGo() {
    try (World world = new World(FakeDriver.strict())) {
      FakeBuffer x = new FakeBuffer(1_000, 64);
      GraphBuilder other = world.context.buildGraph("other");
      GraphBuilder.Node foreign = other.join();
      try (GraphBuilder builder = world.context.buildGraph("g")) {
        GraphBuilder.Node node = builder.fill(x, 0, 64, (byte) 0);
        assertThatThrownBy(() -> node.after(node))
            .isInstanceOf(IllegalArgumentException.class)
            .hasMessageContaining("earlier nodes of graph 'g'");
        assertThatThrownBy(() -> node.after(foreign)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> builder.fill(x, 60, 8, (byte) 0))
            .isInstanceOf(IndexOutOfBoundsException.class);
      }
      assertThat(x.story()).containsExactly("hold", "let go");
      world.driver.refuseNext(DriverCall.GRAPH_BUILD, DriverException.OUT_OF_MEMORY, "FULL");
      other.fill(x, 0, 64, (byte) 0);
      assertThatThrownBy(other::build).isInstanceOf(OutOfDeviceMemoryException.class);
      other.close();
      assertThat(x.story()).containsExactly("hold", "let go", "hold", "let go");
      assertThat(world.driver.openGraphs()).isZero();
    }
  }

  @Test
  void aGraphStaysOnItsDevice() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceContext second =
          DeviceContext.open(world.tasks, world.driver, 1, DeviceConfig.defaults());
      try (GraphBuilder builder = world.context.buildGraph("g");
          DeviceGraph graph = builder.build();
          GraphBuilder there = second.buildGraph("h")) {
        assertThatThrownBy(() -> graph.launch(second.stream()))
            .isInstanceOf(IllegalArgumentException.class)
            .hasMessageContaining("make one there too");
        Kernel here = world.kernel("k");
        assertThatThrownBy(() -> there.launch(here, Grid.of(1)))
            .isInstanceOf(IllegalArgumentException.class)
            .hasMessageContaining("load it there too");
      }
      second.close();
    }
  }
}
