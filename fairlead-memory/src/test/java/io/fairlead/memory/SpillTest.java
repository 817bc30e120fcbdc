package io.fairlead.memory;

import static io.fairlead.device.ElementType.I64;
import static io.fairlead.device.Param.in;
import static io.fairlead.device.Param.inOut;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.Access;
import io.fairlead.device.Kernel;
import io.fairlead.device.ModuleSource;
import io.fairlead.device.Operand;
import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.DriverException;
import io.fairlead.device.spi.Grid;
import io.fairlead.fault.Mutant;
import io.fairlead.host.HostFaults;
import io.fairlead.host.HostStepper;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.TaskScope;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What users see of spilling. */
@Timeout(120)
class SpillTest {
  private static final int BYTES = 32 << 10;
  private static final int COUNT = BYTES / Long.BYTES;

  /** Of three buffers. */
  private static final long LIMIT = 3 * BYTES;

  private static final ModuleSource ADD =
      ModuleSource.java(
          "add",
          Map.of(
              "add",
              (arguments, begin, end) -> {
                for (long i = begin; i < end; i++) {
                  long sum =
                      arguments.buffer(0).getAtIndex(ValueLayout.JAVA_LONG, i)
                          + arguments.buffer(1).getAtIndex(ValueLayout.JAVA_LONG, i);
                  arguments.buffer(0).setAtIndex(ValueLayout.JAVA_LONG, i, sum);
                }
              }));

  private TestDevice world;
  private Device device;

  private void open(SpillConfig spill) {
    open(spill, Map.of());
  }

  private void open(SpillConfig spill, Map<String, String> settings) {
    world =
        TestDevice.open(
            MemoryConfig.defaults()
                .withLimit(LIMIT)
                .withChunk(8192)
                .withWait(Duration.ofMinutes(5))
                .withSpill(spill),
            settings);
    device = world.device;
  }

  private static SpillConfig host(long bytes) {
    return SpillConfig.TO_HOST.withHostBytesMax(bytes);
  }

  @AfterEach
  void close() {
    if (world != null) {
      world.close();
    }
  }

  /** Else the sort may find that, throw, and leave those who wait for memory to the next look. */
  @Test
  void whatChangesWhileItIsPutInOrderIsPutInSomeOrder() throws InterruptedException {
    List<Storage> storages = new ArrayList<>();
    for (int i = 0; i < 512; i++) {
      storages.add(new Storage(0, 64, null, "task", Site.DROPPED, null, 0));
    }
    AtomicBoolean over = new AtomicBoolean();
    Thread changes =
        Thread.ofPlatform()
            .start(
                () -> {
                  SplittableRandom random = new SplittableRandom(1);
                  while (!over.get()) {
                    storages.get(random.nextInt(512)).priority = random.nextInt(1000);
                  }
                });
    try {
      for (int i = 0; i < 500; i++) {
        assertThat(Spiller.leastFirst(storages)).hasSameSizeAs(storages);
      }
    } finally {
      over.set(true);
      changes.join();
    }
    assertThat(Spiller.leastFirst(storages))
        .isSortedAccordingTo(Comparator.comparingInt(each -> each.priority));
  }

  private DeviceBuffer filled(int value) {
    DeviceBuffer buffer = device.allocate(BYTES);
    buffer.fill((byte) value);
    return buffer;
  }

  private List<DeviceBuffer> filled(int from, int to) {
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = from; i <= to; i++) {
      buffers.add(filled(i));
    }
    return buffers;
  }

  private static void assertContents(List<DeviceBuffer> buffers) {
    for (int i = 0; i < buffers.size(); i++) {
      assertThat(buffers.get(i).toBytes()).containsOnly(i + 1);
    }
  }

  // --- its streams ------------------------------------------------------------------------------

  @Test
  void streamsThatCannotAllBeOpenedAreOpenedLater() {
    open(host(1 << 20));
    int needed = streamsAfterASpill();
    close();
    open(host(1 << 20));
    HostFaults.of(world.driver)
        .failCall(
            DriverCall.STREAM_CREATE, 3, DriverException.NOT_SUPPORTED); // ours is one of them
    int used = streamsAfterASpill();
    while (used < needed) { // ends by the test's timeout if there are never all
      used = streamsAfterASpill();
    }
    assertThat(used).isEqualTo(needed);
  }

  private int streamsAfterASpill() {
    DeviceBuffer buffer = filled(1);
    Tier tier = Tier.DEVICE;
    while (tier == Tier.DEVICE) {
      tier = buffer.spill().await();
    }
    buffer.close();
    return device.context().stats().streams();
  }

  // --- room -------------------------------------------------------------------------------------

  @Test
  void moreThanFitsIsKept() {
    open(host(1 << 20));
    List<DeviceBuffer> buffers = filled(1, 12);
    assertContents(buffers);
    assertContents(buffers);
    assertThat(device.memory().spills()).isGreaterThanOrEqualTo(9);
    buffers.forEach(DeviceBuffer::close);
    world.awaitNothingLeft();
  }

  @Test
  void whatTheDriverWillNotHaveBackIsOfferedAgain() {
    RefusedFrees frees = new RefusedFrees();
    world =
        TestDevice.open(
            MemoryConfig.defaults()
                .withPool(MemoryPool.DRIVER)
                .withLimit(LIMIT)
                .withSpill(host(1 << 20)),
            frees::around);
    device = world.device;
    List<DeviceBuffer> buffers = filled(1, 3);
    device.context().reached().await();
    frees.refuse = true;
    assertThat(buffers.getFirst().spill().await()).isEqualTo(Tier.HOST);
    assertThat(device.memory().inUse()).isEqualTo(LIMIT);
    frees.refuse = false;
    awaitInUse(LIMIT - BYTES); // nobody looks meanwhile: it is tried again all the same
    try (Errors errors = new Errors()) {
      assertThat(buffers.get(1).spill().await()).isEqualTo(Tier.HOST);
      assertThat(errors.messages).as("by one alone").isEmpty();
    }
    awaitInUse(BYTES);
    assertThat(frees.done).as("both have left, once").hasValue(2);
    assertContents(buffers);
    buffers.forEach(DeviceBuffer::close);
    world.awaitNothingInUse();
  }

  /** The driver's memory may be used up, by others, say, before anything has to leave. */
  @Test
  void itSpillsWithTheStreamsThatTheDriverHasMemoryFor() {
    for (int left = 1; left < 4; left++) {
      ScarceStreams streams = new ScarceStreams();
      world =
          TestDevice.open(
              MemoryConfig.defaults().withLimit(LIMIT).withSpill(host(1 << 20)), streams::around);
      device = world.device;
      List<DeviceBuffer> buffers = filled(1, 3);
      streams.left.set(left);
      try (Errors errors = new Errors();
          DeviceBuffer other = device.allocate(BYTES)) {
        other.fill((byte) 9);
        assertThat(other.toBytes()).containsOnly(9);
        assertThat(errors.messages).as("%d streams", left).isEmpty();
      }
      assertContents(buffers);
      buffers.forEach(DeviceBuffer::close);
      world.awaitNothingInUse();
      world.close();
    }
    world = null;
  }

  @Test
  void whereThereIsNoneNothingLeavesUntilThereIsOne() {
    ScarceStreams streams = new ScarceStreams();
    world =
        TestDevice.open(
            MemoryConfig.defaults()
                .withLimit(LIMIT)
                .withWait(Duration.ofMillis(500))
                .withSpill(host(1 << 20)),
            streams::around);
    device = world.device;
    List<DeviceBuffer> buffers = filled(1, 3);
    streams.left.set(0);
    try (Errors errors = new Errors()) {
      assertThatThrownBy(() -> device.allocate(BYTES))
          .isInstanceOf(OutOfDeviceMemoryException.class);
      assertThat(errors.messages).isEmpty();
    }
    streams.left.set(1);
    try (DeviceBuffer other = device.allocate(BYTES)) {
      assertThat(other.bytes()).isEqualTo(BYTES);
    }
    assertContents(buffers);
    buffers.forEach(DeviceBuffer::close);
    world.awaitNothingInUse();
  }

  /** A driver with memory for so many more streams. */
  private static final class ScarceStreams {
    final AtomicInteger left = new AtomicInteger(Integer.MAX_VALUE);

    Driver around(Driver driver) {
      return DriverAround.of(
          driver,
          (name, _, call) -> {
            if (name.equals("streamCreate") && left.getAndDecrement() <= 0) {
              throw new DriverException(
                  DriverException.OUT_OF_MEMORY, "OUT_OF_MEMORY", false, "no stream", null);
            }
            return call.make();
          });
    }
  }

  /** Ends by the test's timeout if it never comes to that. */
  private void awaitInUse(long bytes) {
    while (device.memory().inUse() != bytes) {
      device.context().reached().await();
      Thread.onSpinWait();
    }
  }

  /** A driver that takes no memory back while that is wanted. */
  private static final class RefusedFrees {
    volatile boolean refuse;

    /** How many it has taken. */
    final AtomicInteger done = new AtomicInteger();

    Driver around(Driver driver) {
      return DriverAround.of(
          driver,
          (name, _, call) -> {
            boolean frees = name.equals("freeAsync");
            if (frees && refuse) {
              throw new DriverException(
                  DriverException.INVALID_VALUE, "INVALID_VALUE", false, "not now", null);
            }
            Object result = call.make();
            done.addAndGet(frees ? 1 : 0);
            return result;
          });
    }
  }

  /** What owners of threads say went wrong on them while it is open. */
  private static final class Errors extends Handler implements AutoCloseable {
    private final Logger logger = Logger.getLogger(Owner.class.getName());
    final List<String> messages = Collections.synchronizedList(new ArrayList<>());

    Errors() {
      logger.addHandler(this);
    }

    @Override
    public void publish(LogRecord line) {
      messages.add(line.getMessage());
    }

    @Override
    public void flush() {}

    @Override
    public void close() {
      logger.removeHandler(this);
    }
  }

  /** The one to go first has no room below; the next one, which is smaller, has. */
  private void spillTheSmallerOne() {
    world =
        TestDevice.open(
            MemoryConfig.defaults()
                .withLimit(3 * BYTES)
                .withChunk(4096)
                .withWait(Duration.ofMillis(500))
                .withSpill(host(BYTES)));
    device = world.device;
    DeviceBuffer large = device.allocate(2 * BYTES);
    large.fill((byte) 1);
    DeviceBuffer small = device.allocate(BYTES);
    small.fill((byte) 2);
    device.context().reached().await();
    try (DeviceBuffer other = device.allocate(BYTES)) {
      assertThat(small.tier()).isEqualTo(Tier.HOST);
      other.fill((byte) 3);
      assertThat(large.toBytes()).containsOnly(1);
      assertThat(other.toBytes()).containsOnly(3);
    }
    assertThat(small.toBytes()).containsOnly(2);
    large.close();
    small.close();
  }

  @Test
  void whatIsTooLargeForTheRoomBelowKeepsNobodyFromIt() {
    spillTheSmallerOne();
  }

  @Test
  void whereItDidNobodyWouldLeave() {
    try (var _ = Mutant.enable("spill.full.all")) {
      assertThatThrownBy(this::spillTheSmallerOne)
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("nothing came back");
    }
  }

  /** The limit has room for it, but nowhere in one piece. */
  private void allocateBetweenOthers(MemoryPool pool) {
    int piece = (int) (TestDevice.MEMORY / 16);
    world =
        TestDevice.open(
            MemoryConfig.defaults()
                .withPool(pool)
                .withLimit(TestDevice.MEMORY)
                .withWait(Duration.ofMinutes(5))
                .withSpill(host(16 << 20)));
    device = world.device;
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 0; i < 16; i++) {
      buffers.add(device.allocate(piece));
      buffers.get(i).fill((byte) i);
    }
    device.context().reached().await();
    for (int i = 0; i < 16; i += 2) {
      buffers.get(i).close();
    }
    device.context().reached().await();
    try (DeviceBuffer large = device.allocate(6L * piece)) {
      large.fill((byte) 99);
      assertThat(large.toBytes()).containsOnly(99);
    }
    for (int i = 1; i < 16; i += 2) {
      assertThat(buffers.get(i).toBytes()).containsOnly(i);
      buffers.get(i).close();
    }
    world.awaitNothingInUse();
    assertThat(device.memory().spills()).as("spills").isPositive();
    assertThat(device.budget().hasWaiting()).as("somebody waits").isFalse();
  }

  @ParameterizedTest
  @EnumSource
  void whoIsInTheWayOfALargeOneLeaves(MemoryPool pool) {
    allocateBetweenOthers(pool);
  }

  @ParameterizedTest
  @EnumSource
  void withoutThatALargeOneIsRefused(MemoryPool pool) {
    try (var _ = Mutant.enable("spill.refused.skip")) {
      assertThatThrownBy(() -> allocateBetweenOthers(pool))
          .isInstanceOf(OutOfDeviceMemoryException.class)
          .hasMessageContaining("the driver has no room although the limit has");
    }
  }

  @Test
  void operationsThatNeedEachOthersOperandsBothGoOn() {
    open(host(1 << 20));
    Kernel add = device.load(ADD).kernel("add", inOut(I64), in(I64));
    int rounds = 50;
    List<DeviceBuffer> shared = filled(0, 3);
    shared.forEach(buffer -> buffer.fill((byte) 0));
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      for (int i = 0; i < 4; i++) {
        int mine = i;
        // each writes its own, and reads that of the next: two at a time fit beside a third
        scope.fork(
            () -> {
              for (int round = 0; round < rounds; round++) {
                add.launch(Grid.of(COUNT), shared.get(mine), shared.get((mine + 1) % 4));
              }
              return rounds;
            });
      }
      assertThat(scope.join()).hasSize(4);
    }
    shared.forEach(buffer -> assertThat(buffer.toLongs()).containsOnly(0));
    assertThat(device.memory().returns()).isPositive();
    shared.forEach(DeviceBuffer::close);
  }

  @Test
  void whatNobodyCanMoveIsNamed() {
    world =
        TestDevice.open(
            MemoryConfig.defaults()
                .withLimit(LIMIT)
                .withWait(Duration.ofMillis(50))
                .withCreationSites(CreationSites.ALL)
                .withSpill(host(1 << 20)));
    device = world.device;
    List<DeviceBuffer> buffers = filled(1, 3);
    List<Hold> holds = buffers.stream().map(DeviceBuffer::hold).toList();
    assertThatThrownBy(() -> device.allocate(BYTES))
        .isInstanceOf(OutOfDeviceMemoryException.class)
        .hasMessageContaining("nothing came back within 50 ms")
        .hasMessageContaining("spilled to host 0 bytes of at most 1.0 MiB")
        .hasMessageContaining("fairlead.memory.spill.directory")
        .hasMessageContaining(", held or in a graph");
    holds.getFirst().close();
    // not by the allocation, whose 50 ms are for the refusal
    assertThat(buffers.getFirst().spill().await()).isEqualTo(Tier.HOST);
    device.context().reached().await();
    device.allocate(BYTES).close();
    holds.forEach(Hold::close);
    buffers.forEach(DeviceBuffer::close);
  }

  @Test
  void aFullHostTierEndsSpilling() {
    open(host(2 * BYTES));
    DeviceBuffer first = filled(1);
    DeviceBuffer second = filled(2);
    DeviceBuffer third = filled(3);
    assertThat(first.spill().await()).isEqualTo(Tier.HOST);
    assertThat(second.spill().await()).isEqualTo(Tier.HOST);
    assertThat(third.spill().await()).as("there is no room").isEqualTo(Tier.DEVICE);
    first.fill((byte) 1); // its image is worth nothing now, and goes for the next
    device.context().reached().await();
    assertThat(third.spill().await()).isEqualTo(Tier.HOST);
    assertContents(List.of(first, second, third));
    List.of(first, second, third).forEach(DeviceBuffer::close);
  }

  @Test
  void aReservationKeepsWhatItWasPromised() {
    open(host(1 << 20));
    List<DeviceBuffer> others = filled(1, 3);
    world.tasks.enter(
        "reserves",
        0,
        () -> {
          try (Reservation reservation = device.reserve(2 * BYTES)) {
            DeviceBuffer mine = filled(9);
            assertThat(mine.spill().await()).isEqualTo(Tier.HOST);
            device.context().reached().await();
            assertThat(device.memory().pendingFree()).isZero();
            assertThat(reservation.free()).isEqualTo(2 * BYTES);
            assertThat(mine.toBytes()).containsOnly(9);
            assertThat(reservation.free()).isEqualTo(BYTES);
            mine.close();
          }
          return 0;
        });
    assertContents(others);
    others.forEach(DeviceBuffer::close);
  }

  @Test
  void spillingThatIsOffLeavesEverything() {
    open(SpillConfig.OFF);
    DeviceBuffer buffer = filled(1);
    assertThat(buffer.spill().await()).isEqualTo(Tier.DEVICE);
    buffer.hold().close();
    buffer.close();
  }

  // --- everything that uses buffers -------------------------------------------------------------

  @Test
  void everyWayOfUsingItBringsItBack() {
    open(host(1 << 20));
    DeviceBuffer buffer = filled(1);
    DeviceBuffer other = filled(2);
    List<Runnable> uses =
        List.of(
            () -> buffer.fill((byte) 1),
            () -> buffer.fillInts(0x01010101),
            () -> buffer.upload(new byte[8]),
            () -> buffer.toBytes(),
            () -> buffer.download(segment -> segment.byteSize()).await(),
            () -> buffer.copyFrom(other),
            () -> other.copyFrom(buffer),
            () -> buffer.slice(8, 8).fill((byte) 4),
            () -> buffer.lease(device.stream()).close(),
            () -> buffer.hold().close(),
            () -> device.foreign(List.of(other), List.of(buffer), (_, written) -> written[0]));
    for (Runnable use : uses) {
      // what is used again and again stays the first time
      Tier there = buffer.spill().await();
      assertThat(there == Tier.HOST ? there : buffer.spill().await()).isEqualTo(Tier.HOST);
      use.run();
      assertThat(buffer.tier()).isEqualTo(Tier.DEVICE);
    }
    List.of(buffer, other).forEach(DeviceBuffer::close);
  }

  @Test
  void devicesCopyWhatIsBelowOnBoth() {
    open(host(1 << 20), Map.of("devices", "2"));
    Device second = world.devices.get(1);
    List<DeviceBuffer> here = filled(1, 6);
    List<DeviceBuffer> there = new ArrayList<>();
    for (int i = 0; i < 6; i++) {
      there.add(second.allocate(BYTES));
    }
    // both ways at once, so each needs the memory that the other one keeps
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      scope.fork(() -> copyAll(there, here, 0, 3));
      scope.fork(() -> copyAll(there, here, 3, 6));
      scope.join();
    }
    here.forEach(buffer -> buffer.fill((byte) 0));
    try (TaskScope<Integer> scope = world.tasks.scope()) {
      scope.fork(() -> copyAll(here, there, 0, 3));
      scope.fork(() -> copyAll(here, there, 3, 6));
      scope.join();
    }
    assertContents(here);
    assertThat(second.memory().returns()).isPositive();
    Stream.concat(here.stream(), there.stream()).forEach(DeviceBuffer::close);
  }

  private static int copyAll(List<DeviceBuffer> to, List<DeviceBuffer> from, int begin, int end) {
    for (int i = begin; i < end; i++) {
      to.get(i).copyFrom(from.get(i));
    }
    return end - begin;
  }

  // --- disk -------------------------------------------------------------------------------------

  @Test
  void whatDoesNotFitTheHostGoesToDisk(@TempDir Path directory) {
    open(host(2 * BYTES).withDisk(directory, 1 << 20));
    List<DeviceBuffer> buffers = filled(1, 9);
    assertThat(buffers.stream().map(DeviceBuffer::tier).filter(Tier.DISK::equals)).isNotEmpty();
    assertThat(device.memory().onDisk()).isPositive();
    assertContents(buffers);
    assertContents(buffers);
    buffers.forEach(DeviceBuffer::close);
    device.close();
    assertThat(directory).isEmptyDirectory();
  }

  @Test
  void whatHasNoRoomWaitsForWhatIsBeingCopied(@TempDir Path directory) {
    List<DeviceBuffer> buffers = steppedWithRoomForOne(directory, 3);
    List<Completion<Tier>> spilled = buffers.stream().map(DeviceBuffer::spill).toList();
    device.spiller().awaitLook();
    assertThat(spilled).as("one is copied, and the others stay").noneMatch(Completion::isDone);
    stepUntilAllAreDone(spilled);
    assertThat(spilled.stream().map(Completion::getNow)).containsOnly(Tier.HOST);
    assertThat(buffers.stream().map(DeviceBuffer::tier))
        .containsExactlyInAnyOrder(Tier.DISK, Tier.DISK, Tier.HOST);
    buffers.forEach(DeviceBuffer::close);
  }

  private List<DeviceBuffer> steppedWithRoomForOne(Path directory, int count) {
    world =
        TestDevice.stepped(
            MemoryConfig.defaults()
                .withLimit(LIMIT)
                .withChunk(8192)
                .withSpill(host(BYTES).withDisk(directory, 1 << 20)));
    device = world.device;
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (int i = 1; i <= count; i++) {
      buffers.add(world.filled(world.stepper(), BYTES, i));
    }
    return buffers;
  }

  /** While a second one waits for its room; only its first piece has come down. */
  private List<Completion<Tier>> firstPieceIsOnDisk(List<DeviceBuffer> buffers) {
    List<Completion<Tier>> spilled = buffers.stream().map(DeviceBuffer::spill).toList();
    device.spiller().awaitLook();
    long lane = world.stepper().ready().getFirst();
    int pieces = copies(lane);
    while (copies(lane) == pieces || !isCopy(world.stepper().pending(lane).getFirst())) {
      world.stepper().complete(lane);
    }
    assertThat(copies(lane)).isEqualTo(pieces - 1);
    while (device.memory().moved().toDisk() == 0) {
      Thread.onSpinWait();
    }
    assertThat(device.memory().moved().toDisk()).isEqualTo(8192);
    assertThat(buffers.getFirst().tier()).isEqualTo(Tier.DEVICE);
    assertThat(device.spiller().toDisk()).isZero();
    return spilled;
  }

  private int copies(long lane) {
    return (int) world.stepper().pending(lane).stream().filter(SpillTest::isCopy).count();
  }

  private static boolean isCopy(HostStepper.Pending pending) {
    return pending.description().contains("copy");
  }

  @Test
  void whatIsCopiedIsWrittenPieceByPieceWhereTheRoomIsWantedAgain(@TempDir Path directory) {
    List<DeviceBuffer> buffers = steppedWithRoomForOne(directory, 2);
    List<Completion<Tier>> spilled = firstPieceIsOnDisk(buffers);
    stepUntilAllAreDone(spilled);
    assertThat(buffers.stream().map(DeviceBuffer::tier)).containsExactly(Tier.DISK, Tier.HOST);
    assertThat(device.spiller().toDisk()).isEqualTo(1);
    buffers.forEach(DeviceBuffer::close);
  }

  @Test
  void whatIsWrittenWhileItIsOnItsWayToDiskIsNoImage(@TempDir Path directory) throws Exception {
    List<DeviceBuffer> buffers = steppedWithRoomForOne(directory, 2);
    List<Completion<Tier>> spilled = firstPieceIsOnDisk(buffers);
    buffers.getFirst().fill((byte) 9);
    stepUntilAllAreDone(spilled);
    assertThat(buffers.getFirst().tier()).isEqualTo(Tier.DEVICE);
    while (device.memory().onDisk() > 0) {
      device.spiller().awaitLook(); // what was written of it goes
    }
    assertThat(device.spiller().toDisk()).isZero();
    MemorySegment read = Arena.ofAuto().allocate(BYTES);
    device.stream().copyToHost(read, buffers.getFirst(), 0);
    stepUntilAllAreDone(List.of(device.stream().reached()));
    assertThat(read.toArray(ValueLayout.JAVA_BYTE)).containsOnly(9);
    buffers.forEach(DeviceBuffer::close);
  }

  @Test
  void whatIsClosedWhileItIsOnItsWayToDiskLeavesNothing(@TempDir Path directory) {
    List<DeviceBuffer> buffers = steppedWithRoomForOne(directory, 2);
    List<Completion<Tier>> spilled = firstPieceIsOnDisk(buffers);
    buffers.getFirst().close();
    stepUntilAllAreDone(spilled);
    while (device.memory().onDisk() > 0) {
      device.spiller().awaitLook();
    }
    assertThat(buffers.getLast().tier()).isNotEqualTo(Tier.DISK);
    buffers.getLast().close();
    device.context().reached();
    world.stepper().completeAll();
    assertThat(device.memory().inUse()).isZero();
  }

  @Test
  void aDeviceThatClosesEndsWhatIsOnItsWayToDisk(@TempDir Path directory) {
    List<DeviceBuffer> buffers = steppedWithRoomForOne(directory, 2);
    firstPieceIsOnDisk(buffers);
    buffers.forEach(DeviceBuffer::close);
    world.close();
    world = null;
    assertThat(directory).isEmptyDirectory();
  }

  private void stepUntilAllAreDone(List<? extends Completion<?>> all) {
    while (!all.stream().allMatch(Completion::isDone)) {
      device.context().reached();
      world.stepper().completeAll();
      device.spiller().awaitLook();
    }
  }

  @Test
  void allOfOneOperationComeBackFromDisk(@TempDir Path directory) {
    open(host(BYTES).withDisk(directory, 1 << 20));
    List<DeviceBuffer> buffers = filled(1, 3);
    buffers.forEach(buffer -> assertThat(buffer.spill().await()).isEqualTo(Tier.HOST));
    device.stream()
        .enqueue(
            DriverCall.LAUNCH,
            "all",
            buffers.toArray(Operand[]::new),
            new Access[] {Access.READ, Access.READ, Access.READ},
            (_, _) -> {});
    assertThat(buffers.stream().map(DeviceBuffer::tier)).containsOnly(Tier.DEVICE);
    assertContents(buffers);
    buffers.forEach(DeviceBuffer::close);
    world.awaitNothingInUse();
  }

  @Test
  void whatTheDiskHasLostIsNotHandedOut(@TempDir Path directory) throws IOException {
    open(host(BYTES).withDisk(directory, 1 << 20));
    DeviceBuffer lost = filled(1);
    DeviceBuffer second = filled(2);
    assertThat(lost.spill().await()).isEqualTo(Tier.HOST);
    assertThat(second.spill().await()).isEqualTo(Tier.HOST);
    assertThat(lost.tier()).isEqualTo(Tier.DISK);
    damage(directory);
    for (int i = 0; i < 2; i++) {
      assertThatThrownBy(lost::toBytes).isInstanceOf(SpillException.class);
    }
    assertThat(lost.tier()).isEqualTo(Tier.DISK);
    assertThat(second.toBytes()).containsOnly(2);
    lost.close();
    second.close();
    world.awaitNothingInUse();
  }

  private static void damage(Path directory) throws IOException {
    try (Stream<Path> files = Files.walk(directory)) {
      for (Path file : files.filter(each -> isImage(each)).toList()) {
        byte[] bytes = Files.readAllBytes(file);
        bytes[bytes.length / 2] ^= 1;
        Files.write(file, bytes);
      }
    }
  }

  private static boolean isImage(Path file) {
    return file.getFileName().toString().startsWith("image-");
  }

  @Test
  void aDirectoryThatIsNotSafeIsRefusedAtOnce(@TempDir Path directory) throws IOException {
    Path file = Files.createFile(directory.resolve("file"));
    assertThatThrownBy(() -> open(host(BYTES).withDisk(file, 1 << 20)))
        .isInstanceOf(SpillException.class);
  }

  // --- settings ---------------------------------------------------------------------------------

  @Test
  void settingsAreRead() {
    assertThat(spillOf(Map.of())).isEqualTo(SpillConfig.TO_HOST);
    assertThat(spillOf(Map.of("fairlead.memory.spill", "on"))).isEqualTo(SpillConfig.TO_HOST);
    assertThat(spillOf(Map.of("fairlead.memory.spill.host", "1m")))
        .isEqualTo(SpillConfig.TO_HOST.withHostBytesMax(1 << 20));
    assertThat(spillOf(Map.of("fairlead.memory.spill", "off", "fairlead.memory.spill.host", "1m")))
        .isEqualTo(SpillConfig.OFF);
    assertThat(spillOf(Map.of("fairlead.memory.spill", "off"))).isEqualTo(SpillConfig.OFF);
    assertThat(
            spillOf(
                Map.of(
                    "fairlead.memory.spill",
                    "ON",
                    "fairlead.memory.spill.host",
                    "512m",
                    "fairlead.memory.spill.directory",
                    "/scratch",
                    "fairlead.memory.spill.disk",
                    "3G")))
        .isEqualTo(
            SpillConfig.TO_HOST
                .withHostBytesMax(512L << 20)
                .withDisk(Path.of("/scratch"), 3L << 30));
    assertThatThrownBy(() -> spillOf(Map.of("fairlead.memory.spill", "maybe")))
        .hasMessageContaining("fairlead.memory.spill is 'maybe'; it must be on or off");
    assertThatThrownBy(() -> spillOf(Map.of("fairlead.memory.spill.host", "much")))
        .hasMessage(
            "property fairlead.memory.spill.host: 'much' is no size; write bytes, or a number with"
                + " k, m, g or t: 512m, 4g");
    assertThat(spillOf(Map.of("fairlead.memory.spill.host", "0")))
        .isEqualTo(SpillConfig.TO_HOST.withHostBytesMax(0));
    assertThatThrownBy(() -> spillOf(Map.of("fairlead.memory.spill.disk", "1g")))
        .hasMessageContaining("needs fairlead.memory.spill.directory");
    assertThatThrownBy(() -> SpillConfig.TO_HOST.withHostBytesMax(-2))
        .hasMessageContaining("hostBytesMax is -2");
  }

  private static SpillConfig spillOf(Map<String, String> settings) {
    Properties properties = new Properties();
    properties.putAll(settings);
    return MemoryConfig.from(properties).spill();
  }
}
