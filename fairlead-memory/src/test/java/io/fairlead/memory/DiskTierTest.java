package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.fault.FairleadException;
import io.fairlead.task.Completion;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.UnaryOperator;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The tier on real files, with its threads. */
class DiskTierTest {
  private static final int CHUNK = 64 << 10;
  private static final long PLENTY = 64L << 20;

  /** Kept here: the log manager does not. */
  private static final Logger LOG = Logger.getLogger(DiskTier.class.getName());

  @TempDir Path directory;
  private final List<DiskTier> tiers = new ArrayList<>();

  private DiskTier open(DiskOptions options) {
    DiskTier tier = DiskTier.open(options);
    tiers.add(tier);
    return tier;
  }

  private DiskTier open() {
    return open(DiskOptions.of(directory, PLENTY, CHUNK));
  }

  private DiskTier hooked(HookedFiles.Hook hook) {
    return open(
        DiskOptions.of(directory, PLENTY, CHUNK).withFaults(real -> new HookedFiles(real, hook)));
  }

  /** Nearly every test here would warn. */
  @BeforeEach
  void silence() {
    LOG.setLevel(Level.OFF);
  }

  @AfterEach
  void close() {
    LOG.setLevel(null);
    tiers.forEach(DiskTier::close);
    assertThat(directory).as("left behind").isEmptyDirectory();
  }

  // --- what goes right ------------------------------------------------------------------------

  @ParameterizedTest
  @ValueSource(longs = {1, 4095, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 12345})
  void whatComesBackIsWhatWasWritten(long length) {
    for (UnaryOperator<DiskFiles> files :
        List.<UnaryOperator<DiskFiles>>of(real -> real, _ -> LocalFiles.buffered())) {
      for (int off : new int[] {0, 1, 512}) {
        DiskTier tier = open(DiskOptions.of(directory, PLENTY, CHUNK).withFaults(files));
        DiskImage image = image(tier, 7, 3, bytes(length, 1), off);
        assertThat(image.bytes()).isEqualTo(length);
        assertThat(image.generation()).isEqualTo(3);
        assertThat(read(image, off)).isEqualTo(bytes(length, 1));
        assertThat(read(image, 0)).isEqualTo(bytes(length, 1));
        tier.close();
      }
    }
  }

  @Test
  void severalChunksGoAtOnceAndInAnyOrder() {
    DiskTier tier = open();
    byte[] bytes = bytes(7 * CHUNK + 100, 2);
    Writing writing = begin(tier, 1, 1, bytes.length);
    MemorySegment memory = native_(bytes, 0);
    List<Completion<Void>> writes =
        List.of(
            writing.write(5 * CHUNK, memory.asSlice(5 * CHUNK)),
            writing.write(0, memory.asSlice(0, 2 * CHUNK)),
            writing.write(2 * CHUNK, memory.asSlice(2 * CHUNK, 3 * CHUNK)));
    DiskImage image = writing.publish().await();
    assertThat(writes).allSatisfy(write -> assertThat(write.isDone()).isTrue());
    MemorySegment back = Arena.ofAuto().allocate(bytes.length, 4096);
    Completion<Void> end = image.read(6 * CHUNK, back.asSlice(6 * CHUNK));
    image.read(0, back.asSlice(0, 6 * CHUNK)).await();
    end.await();
    assertThat(back.toArray(ValueLayout.JAVA_BYTE)).isEqualTo(bytes);
    DiskStats stats = tier.stats();
    assertThat(stats.chunksWritten()).isEqualTo(8);
    assertThat(stats.bytesWritten()).isEqualTo(bytes.length);
    assertThat(stats.chunksRead()).isEqualTo(8);
    assertThat(stats.bytesRead()).isEqualTo(bytes.length);
    assertThat(stats.written()).isEqualTo(1);
    assertThat(stats.images()).isEqualTo(1);
  }

  @Test
  void aChunkIsGivenBackAsSoonAsItIsWritten() {
    DiskTier tier = open();
    byte[] bytes = bytes(2 * CHUNK, 3);
    Writing writing = begin(tier, 1, 1, bytes.length);
    MemorySegment chunk = Arena.ofAuto().allocate(CHUNK, 4096);
    for (int i = 0; i < 2; i++) {
      MemorySegment.copy(MemorySegment.ofArray(bytes), (long) i * CHUNK, chunk, 0, CHUNK);
      writing.write((long) i * CHUNK, chunk).await();
      chunk.fill((byte) 0);
    }
    assertThat(read(writing.publish().await(), 0)).isEqualTo(bytes);
  }

  @Test
  void nothingHasItsNameBeforeItIsWhole() throws IOException {
    List<String> calls = new ArrayList<>();
    DiskTier tier =
        hooked(
            (call, file) -> {
              synchronized (calls) {
                calls.add(call + (file.toString().endsWith(".draft") ? " draft" : ""));
              }
            });
    Writing writing = begin(tier, 1, 1, CHUNK);
    writing.write(0, native_(bytes(CHUNK, 1), 0)).await();
    assertThat(names(tier)).containsExactlyInAnyOrder("lock", "image-0.draft");
    DiskImage image = writing.publish().await();
    assertThat(names(tier)).containsExactlyInAnyOrder("lock", "image-0");
    assertThat(Files.size(image.path())).isEqualTo(image.fileBytes());
    calls.removeIf(call -> call.startsWith("force")); // where it is not direct
    assertThat(calls)
        .containsExactly(
            "create draft",
            "write draft",
            "write draft",
            "close draft",
            "size draft",
            "rename draft");
  }

  @Test
  void filesAreTheUsersAlone() throws IOException {
    DiskTier tier = open();
    DiskImage image = image(tier, 1, 1, bytes(100, 1), 0);
    assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(image.path())))
        .isEqualTo("rw-------");
    assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(tier.path())))
        .isEqualTo("rwx------");
    assertThat(
            PosixFilePermissions.toString(
                Files.getPosixFilePermissions(tier.path().resolve("lock"))))
        .isEqualTo("rw-------");
  }

  @Test
  void noMoreLiesThereThanIsAllowedAndWhoWasRefusedIsTold() throws InterruptedException {
    CountDownLatch told = new CountDownLatch(1);
    long room = new DiskFormat(1, 1, CHUNK, CHUNK, 4096).fileBytes();
    DiskTier tier = open(DiskOptions.of(directory, room, CHUNK).withRoomAgain(told::countDown));
    DiskImage image = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    assertThat(tier.begin(2, 1, 1)).isNull();
    assertThat(tier.stats().bytes()).isEqualTo(room);
    assertThat(tier.stats().refusals()).isEqualTo(1);
    assertThat(tier.health()).isEqualTo(DiskTier.Health.USABLE);
    image.close().await();
    told.await();
    assertThat(tier.stats().bytes()).isZero();
    image(tier, 2, 1, bytes(CHUNK, 1), 0);
  }

  // --- files that are written over ------------------------------------------------------------

  private DiskOptions withSpares(long bytesMax) {
    return DiskOptions.of(directory, bytesMax, CHUNK).withSpares(CHUNK, bytesMax);
  }

  @Test
  void theFileOfAnImageThatIsGoneIsWrittenOver() throws IOException {
    List<String> calls = new ArrayList<>();
    DiskTier tier =
        open(
            withSpares(PLENTY)
                .withFaults(
                    real ->
                        new HookedFiles(
                            real,
                            (call, file) -> {
                              synchronized (calls) {
                                calls.add(call + " " + file.getFileName());
                              }
                            })));
    DiskImage first = image(tier, 1, 1, bytes(2 * CHUNK, 1), 0);
    first.close().await();
    assertThat(tier.stats().bytes()).isZero();
    assertThat(tier.stats().spareBytes()).isEqualTo(first.fileBytes());
    image(tier, 1, 1, bytes(3 * CHUNK, 1), 0); // another size
    assertThat(tier.stats().rewritten()).isZero();
    calls.clear();
    Writing writing = begin(tier, 2, 7, 2 * CHUNK);
    writing.write(0, native_(bytes(2 * CHUNK, 2), 0)).await();
    assertThat(names(tier)).contains("image-2.draft").doesNotContain("image-0", "image-2");
    DiskImage second = writing.publish().await();
    assertThat(names(tier)).contains("image-2").doesNotContain("image-0", "image-2.draft");
    calls.removeIf(call -> call.startsWith("force")); // where it is not direct
    assertThat(calls)
        .containsExactly(
            "rename image-0",
            "reopen image-2.draft",
            "write image-2.draft",
            "write image-2.draft",
            "close image-2.draft",
            "size image-2.draft",
            "rename image-2.draft");
    assertThat(read(second, 0)).isEqualTo(bytes(2 * CHUNK, 2));
    assertThat(tier.stats().rewritten()).isEqualTo(1);
    assertThat(tier.stats().spareBytes()).isZero();
  }

  @Test
  @Timeout(30)
  void whoLacksTheRoomOfSparesGetsIt() throws InterruptedException {
    Semaphore told = new Semaphore(0);
    long room = 3 * new DiskFormat(1, 1, CHUNK, CHUNK, 4096).fileBytes();
    DiskTier tier = open(withSpares(room).withRoomAgain(told::release));
    DiskImage first = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    DiskImage second = image(tier, 2, 1, bytes(CHUNK, 1), 0);
    DiskImage third = image(tier, 2, 1, bytes(CHUNK, 1), 0);
    first.close().await();
    second.close().await();
    third.close().await();
    assertThat(tier.stats().spareBytes()).isEqualTo(room);
    byte[] larger = bytes(CHUNK + 4096, 1);
    Writing writing = tier.begin(3, 1, larger.length);
    assertThat(writing).isNull();
    for (; writing == null; writing = tier.begin(3, 1, larger.length)) {
      told.acquire(); // also of the first one's end
    }
    writing.write(0, native_(larger, 0));
    writing.publish().await();
    DiskStats stats = tier.stats();
    assertThat(stats.spareBytes()).as("only those that were in the way are gone").isPositive();
    assertThat(tier.begin(4, 1, 2 * CHUNK)).isNull(); // no spare makes room for that
    assertThat(tier.stats().spareBytes()).isEqualTo(stats.spareBytes());
  }

  @ParameterizedTest
  @ValueSource(strings = {"rename", "reopen", "write", "close", "size"})
  void anErrorWhileAFileIsWrittenOverLeavesNothingOfIt(String where) throws Exception {
    AtomicBoolean failing = new AtomicBoolean();
    CountDownLatch mayTry = new CountDownLatch(1);
    DiskTier tier =
        open(
            withSpares(PLENTY)
                .withFaults(
                    real ->
                        new HookedFiles(
                            real,
                            (call, file) -> {
                              awaitIfTrial(file, mayTry);
                              if (call.equals(where) && failing.compareAndSet(true, false)) {
                                throw new IOException("Input/output error");
                              }
                            })));
    DiskImage one = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    DiskImage two = image(tier, 1, 1, bytes(2 * CHUNK, 1), 0);
    one.close().await();
    two.close().await();
    failing.set(true);
    Writing writing = begin(tier, 1, 2, CHUNK);
    writing.write(0, native_(bytes(CHUNK, 2), 0));
    assertThatThrownBy(() -> writing.publish().await()).isInstanceOf(SpillException.class);
    writing.abandon().await();
    mayTry.countDown();
    assertThat(read(againImage(tier, bytes(CHUNK, 3)), 0)).isEqualTo(bytes(CHUNK, 3));
    assertThat(names(tier)).containsExactlyInAnyOrder("lock", "image-3"); // nor the other spare
    assertThat(tier.stats().spareBytes()).isZero();
  }

  @Test
  void aFileThatWasDamagedIsNotWrittenOver() throws IOException {
    DiskTier tier = open(withSpares(PLENTY));
    DiskImage image = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    flip(image.path(), 4096);
    assertThatThrownBy(() -> read(image, 0)).isInstanceOf(SpillException.class);
    againImage(tier, bytes(CHUNK, 2));
    image.close().await();
    assertThat(tier.stats().spareBytes()).isZero();
    assertThat(image.path()).doesNotExist();
  }

  @Test
  void whatIsGivenUpLeavesNothing() throws IOException {
    DiskTier tier = open();
    Writing writing = begin(tier, 1, 1, 2 * CHUNK);
    Completion<Void> write = writing.write(0, native_(bytes(CHUNK, 1), 0));
    writing.abandon().await();
    assertThat(write.isDone()).isTrue();
    assertThat(names(tier)).containsExactly("lock");
    assertThat(tier.stats().bytes()).isZero();
    assertThat(writing.abandon().isDone()).isTrue();
    assertThatIllegalStateException()
        .isThrownBy(() -> writing.write(CHUNK, native_(bytes(CHUNK, 1), 0)));
    assertThatIllegalStateException().isThrownBy(writing::publish);
  }

  @Test
  void anInterruptOfTheCallerHarmsNothing() {
    Thread.currentThread().interrupt();
    try {
      DiskTier tier = open();
      byte[] bytes = bytes(CHUNK, 5);
      Writing writing = begin(tier, 1, 1, CHUNK);
      writing.write(0, native_(bytes, 0)).awaitUninterruptibly();
      DiskImage image = writing.publish().awaitUninterruptibly();
      MemorySegment back = Arena.ofAuto().allocate(CHUNK);
      image.read(0, back).awaitUninterruptibly();
      assertThat(back.mismatch(MemorySegment.ofArray(bytes))).isEqualTo(-1);
      tier.close();
    } finally {
      assertThat(Thread.interrupted()).isTrue();
    }
  }

  @Test
  void aCallbackThatInterruptsItsThreadHarmsNothing() {
    CountDownLatch go = new CountDownLatch(1);
    DiskTier tier =
        open(
            DiskOptions.of(directory, PLENTY, CHUNK)
                .withThreads(1)
                .withFaults(
                    real -> new HookedFiles(real, hold("write", new CountDownLatch(1), go))));
    Writing writing = begin(tier, 1, 1, 2 * CHUNK);
    MemorySegment memory = native_(bytes(2 * CHUNK, 5), 0);
    Completion<Void> first = writing.write(0, memory.asSlice(0, CHUNK));
    first.onDone(_ -> Thread.currentThread().interrupt());
    go.countDown();
    first.await();
    writing.write(CHUNK, memory.asSlice(CHUNK)).await();
    assertThat(read(writing.publish().await(), 0)).isEqualTo(bytes(2 * CHUNK, 5));
  }

  @Test
  void itsThreadsEndWithIt() throws InterruptedException {
    DiskTier tier = open();
    List<Thread> threads = new ArrayList<>();
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getName().startsWith("fairlead-disk-")) {
        threads.add(thread);
        assertThat(thread.isDaemon()).isTrue();
      }
    }
    assertThat(threads).hasSizeGreaterThanOrEqualTo(2);
    tier.close();
    tier.close();
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(tier.begin(1, 1, 1)).isNull();
  }

  // --- misuse ---------------------------------------------------------------------------------

  @Test
  void whatIsNoChunkIsRefused() {
    DiskTier tier = open();
    Writing writing = begin(tier, 1, 1, 2 * CHUNK + 5);
    MemorySegment memory = Arena.ofAuto().allocate(3 * CHUNK);
    for (long[] wrong :
        new long[][] {
          {1, CHUNK}, {0, CHUNK - 1}, {0, 0}, {-CHUNK, CHUNK}, {2 * CHUNK, 6}, {3 * CHUNK, 1}
        }) {
      assertThatIllegalArgumentException()
          .isThrownBy(() -> writing.write(wrong[0], memory.asSlice(0, wrong[1])))
          .withMessageContaining("whole chunks");
    }
    assertThatIllegalArgumentException()
        .isThrownBy(() -> writing.write(0, MemorySegment.ofArray(new byte[CHUNK])))
        .withMessageContaining("native");
    try (Arena confined = Arena.ofConfined()) {
      assertThatIllegalArgumentException()
          .isThrownBy(() -> writing.write(0, confined.allocate(CHUNK)))
          .withMessageContaining("shared arena");
    }
    assertThatIllegalArgumentException().isThrownBy(() -> tier.begin(1, 1, 0));
    writing.write(0, memory.asSlice(0, CHUNK)).await();
    assertThatIllegalStateException()
        .isThrownBy(() -> writing.write(0, memory.asSlice(0, CHUNK)))
        .withMessageContaining("before");
    assertThatIllegalStateException()
        .isThrownBy(writing::publish)
        .withMessageContaining("chunk 1 was not written");
    writing.abandon();
  }

  @Test
  void aClosedImageIsNotRead() {
    DiskTier tier = open();
    DiskImage image = image(tier, 1, 1, bytes(10, 1), 0);
    assertThatIllegalArgumentException()
        .isThrownBy(() -> image.read(0, Arena.ofAuto().allocate(10).asReadOnly()));
    image.close().await();
    image.close().await();
    assertThatIllegalStateException().isThrownBy(() -> image.read(0, Arena.ofAuto().allocate(10)));
    assertThat(image.path()).doesNotExist();
  }

  @Test
  void optionsSayWhatTheyMayBe() {
    assertThatIllegalArgumentException()
        .isThrownBy(() -> DiskOptions.of(directory, -1, CHUNK))
        .withMessageContaining("bytesMax is -1");
    assertThatIllegalArgumentException()
        .isThrownBy(() -> DiskOptions.of(directory, 1, 1000))
        .withMessageContaining("multiple of 4096");
    assertThatIllegalArgumentException()
        .isThrownBy(() -> DiskOptions.of(directory, 1, CHUNK).withThreads(99))
        .withMessageContaining("1 to 16");
  }

  // --- what is found --------------------------------------------------------------------------

  @Test
  void aFlippedBitIsFoundWhereverItIs() throws IOException {
    DiskTier tier = open();
    byte[] bytes = bytes(CHUNK + 10, 4);
    DiskImage image = image(tier, 1, 1, bytes, 0);
    for (long at :
        new long[] {0, 20, 24, 32, 60, 100, 4095, 4096, 4096 + CHUNK + 9, 4096 + CHUNK + 10}) {
      flip(image.path(), at);
      assertThatThrownBy(() -> read(image, 0))
          .as("byte %d", at)
          .isInstanceOfSatisfying(
              SpillException.class,
              found -> {
                assertThat(found.reason()).isEqualTo(SpillException.Reason.DAMAGED);
                assertThat(found.isRetryable()).isFalse();
                assertThat(found.path()).isEqualTo(image.path());
                assertThat(found).hasMessageContaining("Check the disk");
              });
      flip(image.path(), at);
    }
    assertThat(read(image, 0)).isEqualTo(bytes);
    assertThat(tier.stats().errorsDamaged()).isGreaterThanOrEqualTo(10);
  }

  /** What goes with one call of the system is many chunks, and what is read is several calls. */
  @Test
  void aFlippedBitIsFoundInEachChunkOfARun() throws IOException {
    DiskTier tier = open();
    byte[] bytes = bytes(130 * CHUNK + 10, 4);
    Writing writing = begin(tier, 1, 1, bytes.length);
    writing.write(0, native_(bytes, 0));
    DiskImage image = writing.publish().await();
    MemorySegment back = Arena.ofAuto().allocate(bytes.length, 4096);
    long dataAt = image.fileBytes() - 130 * CHUNK - 4096;
    for (long chunk : new long[] {0, 1, 63, 64, 127, 128, 129, 130}) {
      flip(image.path(), dataAt + chunk * CHUNK + 7);
      assertThatThrownBy(() -> image.read(0, back).await())
          .hasMessageContaining("chunk " + chunk + " has another checksum");
      flip(image.path(), dataAt + chunk * CHUNK + 7);
    }
    flip(image.path(), dataAt + 130 * CHUNK + 10);
    assertThatThrownBy(() -> image.read(0, back).await()).hasMessageContaining("behind chunk 130");
    flip(image.path(), dataAt + 130 * CHUNK + 10);
    image.read(0, back).await();
    assertThat(back.mismatch(MemorySegment.ofArray(bytes))).isEqualTo(-1);
  }

  @Test
  void aFileThatWasCutShortIsFound() throws IOException {
    DiskTier tier = open();
    DiskImage image = image(tier, 1, 1, bytes(CHUNK + 10, 4), 0);
    for (long length : new long[] {4096 + CHUNK, CHUNK, 4096, 100, 0}) {
      try (RandomAccessFile file = new RandomAccessFile(image.path().toFile(), "rw")) {
        file.setLength(length);
      }
      assertThatThrownBy(() -> read(image, 0)).hasMessageContaining("cut short");
    }
  }

  @Test
  void anotherImageInItsPlaceIsFound() throws IOException {
    DiskTier tier = open();
    byte[] same = bytes(CHUNK, 4);
    DiskImage old = image(tier, 1, 1, same, 0);
    DiskImage image = image(tier, 1, 2, same, 0);
    DiskImage other = image(tier, 2, 2, same, 0);
    Path kept = Files.copy(image.path(), directory.resolve("kept"));
    Files.copy(old.path(), image.path(), StandardCopyOption.REPLACE_EXISTING);
    assertThatThrownBy(() -> read(image, 0)).hasMessageContaining("generation 1 instead of 2");
    Files.copy(other.path(), image.path(), StandardCopyOption.REPLACE_EXISTING);
    assertThatThrownBy(() -> read(image, 0)).hasMessageContaining("storage 2 instead of 1");
    Files.copy(kept, image.path(), StandardCopyOption.REPLACE_EXISTING);
    assertThat(read(image, 0)).isEqualTo(same);
    Files.delete(kept);
  }

  @Test
  void aFileThatIsGoneOrALinkIsNotRead() throws IOException {
    DiskTier tier = open();
    DiskImage image = image(tier, 1, 1, bytes(10, 4), 0);
    Path kept = tier.path().resolve("kept");
    Files.move(image.path(), kept);
    assertThatThrownBy(() -> read(image, 0))
        .isInstanceOfSatisfying(
            SpillException.class,
            gone -> {
              assertThat(gone.reason()).isEqualTo(SpillException.Reason.UNREADABLE);
              assertThat(gone.isRetryable()).isTrue();
            });
    Files.createSymbolicLink(image.path(), kept);
    assertThatThrownBy(() -> read(image, 0)).isInstanceOf(SpillException.class);
    Files.delete(image.path());
    Files.move(kept, image.path());
    assertThat(read(image, 0)).isEqualTo(bytes(10, 4));
  }

  // --- when the disk fails --------------------------------------------------------------------

  @ParameterizedTest
  @ValueSource(strings = {"create", "write", "close", "size", "rename"})
  void anErrorAnywhereLeavesNoImageAndGivesTheBytesBack(String where) throws Exception {
    for (String said : List.of("No space left on device", "Input/output error")) {
      AtomicBoolean failing = new AtomicBoolean(true);
      CountDownLatch mayTry = new CountDownLatch(1);
      CountDownLatch told = new CountDownLatch(1);
      DiskTier tier =
          open(
              DiskOptions.of(directory, PLENTY, CHUNK)
                  .withRoomAgain(told::countDown)
                  .withFaults(
                      real ->
                          new HookedFiles(
                              real,
                              (call, file) -> {
                                awaitIfTrial(file, mayTry);
                                if (failing.get() && call.equals(where)) {
                                  throw new IOException(said);
                                }
                              })));
      boolean full = said.startsWith("No space");
      Writing writing = begin(tier, 1, 1, CHUNK);
      Completion<Void> write = writing.write(0, native_(bytes(CHUNK, 1), 0));
      Completion<DiskImage> published = writing.publish();
      assertThatThrownBy(published::await)
          .isInstanceOfSatisfying(
              SpillException.class,
              failure -> {
                assertThat(failure.reason())
                    .isEqualTo(full ? SpillException.Reason.FULL : SpillException.Reason.UNUSABLE);
                assertThat(failure.isRetryable()).isTrue();
                assertThat(failure).hasMessageContaining(said).hasMessageContaining("stay");
                assertThat(failure).hasMessageContaining("tried again by itself");
              });
      assertThat(write.isDone()).isTrue();
      writing.abandon().await();
      assertThat(names(tier)).doesNotContain("image-0", "image-0.draft");
      assertThat(tier.stats().bytes()).isZero();
      assertThat(tier.begin(1, 1, CHUNK)).isNull();
      assertThat(tier.health()).isEqualTo(full ? DiskTier.Health.FULL : DiskTier.Health.UNUSABLE);
      assertThat(Objects.requireNonNull(tier.failure())).hasMessageContaining(said);
      failing.set(false);
      mayTry.countDown();
      told.await();
      assertThat(read(image(tier, 1, 1, bytes(CHUNK, 1), 0), 0)).isEqualTo(bytes(CHUNK, 1));
      assertThat(tier.health()).isEqualTo(DiskTier.Health.USABLE);
      tier.close();
    }
  }

  /** Memory is what there is too little of when something is spilled, so a trial may find none. */
  @Test
  @Timeout(30)
  void aTrialThatFindsNoMemoryIsFollowedByAnother() {
    AtomicInteger errors = new AtomicInteger();
    DiskTier tier =
        hooked(
            (call, file) -> {
              if (call.equals("create") && errors.compareAndSet(0, 1)) {
                throw new IOException("Input/output error");
              }
              if (file.endsWith("trial") && errors.compareAndSet(1, 2)) {
                throw new OutOfMemoryError("for a test");
              }
            });
    assertThatThrownBy(() -> image(tier, 1, 1, bytes(CHUNK, 1), 0))
        .isInstanceOf(SpillException.class);
    assertThat(read(againImage(tier, bytes(CHUNK, 1)), 0)).isEqualTo(bytes(CHUNK, 1));
    assertThat(errors).hasValue(2);
    assertThat(tier.stats().trials()).isEqualTo(2);
  }

  @Test
  @Timeout(30)
  void aRemovalThatFindsNoMemoryIsTriedAgain() {
    AtomicBoolean failing = new AtomicBoolean(true);
    DiskTier tier =
        hooked(
            (call, file) -> {
              if (call.equals("delete") && file.endsWith("image-0") && failing.getAndSet(false)) {
                throw new OutOfMemoryError("for a test");
              }
            });
    image(tier, 1, 1, bytes(CHUNK, 1), 0).close().await();
    assertThat(failing).isFalse();
    assertThat(tier.stats().bytes()).isPositive();
    assertThat(tier.stats().images()).isZero();
  }

  /** Each thread has a buffer of its own, for what is not aligned. */
  @Test
  @Timeout(30)
  void aThreadThatFindsNoMemoryGoesOn() {
    AtomicInteger failures = new AtomicInteger();
    AtomicBoolean failing = new AtomicBoolean(true);
    DiskTier tier =
        hooked(
            (call, _) -> {
              if (call.equals("buffer") && failing.get()) {
                failures.incrementAndGet();
                throw new OutOfMemoryError("for a test");
              }
            });
    for (int i = 0; i < 2 * DiskOptions.THREADS_MAX; i++) { // each of its threads has its turn
      Writing writing = begin(tier, 1, 1, 10);
      writing.write(0, native_(bytes(10, 1), 0));
      assertThatThrownBy(() -> writing.publish().await())
          .isInstanceOf(SpillException.class)
          .hasMessageContaining("for a test");
    }
    assertThat(failures).hasPositiveValue();
    failing.set(false);
    assertThat(read(image(tier, 1, 1, bytes(10, 1), 0), 0)).isEqualTo(bytes(10, 1));
    tier.close();
  }

  /** What it made in the directory before is removed again. */
  @Test
  void aTierThatCannotBeginLeavesNothing() {
    assertThatThrownBy(
            () ->
                open(
                    DiskOptions.of(directory, PLENTY, CHUNK)
                        .withFaults(
                            _ -> {
                              throw new OutOfMemoryError("for a test");
                            })))
        .hasStackTraceContaining("for a test");
    assertThat(directory).isEmptyDirectory();
  }

  private static void awaitIfTrial(Path file, CountDownLatch mayTry) throws IOException {
    if (file.endsWith("trial")) {
      await(mayTry);
    }
  }

  private static void await(CountDownLatch latch) throws IOException {
    try {
      latch.await();
    } catch (InterruptedException never) {
      throw new IOException(never);
    }
  }

  @Test
  void aFullDiskIsKnownInEveryLanguage() {
    DiskTier tier =
        open(
            DiskOptions.of(directory, PLENTY, CHUNK)
                .withFaults(
                    real ->
                        new HookedFiles(
                            new FaultyFiles(new Random(1), 1, 0) {
                              @Override
                              public long usableBytes(Path where) {
                                return CHUNK - 1;
                              }
                            },
                            (call, _) -> {
                              if (call.equals("write")) {
                                throw new IOException("Auf dem Gerät ist kein Platz mehr");
                              }
                            })));
    Writing writing = begin(tier, 1, 1, CHUNK);
    writing.write(0, native_(bytes(CHUNK, 1), 0));
    assertThatThrownBy(() -> writing.publish().await())
        .isInstanceOfSatisfying(
            SpillException.class,
            failure -> assertThat(failure.reason()).isEqualTo(SpillException.Reason.FULL));
  }

  @Test
  void aDirectoryThatWasRemovedIsMadeAgain() throws Exception {
    CountDownLatch told = new CountDownLatch(1);
    DiskTier tier = open(DiskOptions.of(directory, PLENTY, CHUNK).withRoomAgain(told::countDown));
    DiskImage image = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    Path first = tier.path();
    Files.delete(image.path());
    Files.delete(first.resolve("lock"));
    Files.delete(first);
    Writing writing = begin(tier, 1, 2, CHUNK);
    Completion<Void> write = writing.write(0, native_(bytes(CHUNK, 1), 0));
    assertThatThrownBy(write::await).isInstanceOf(SpillException.class);
    if (tier.begin(1, 2, CHUNK) == null) {
      told.await();
    }
    assertThat(tier.path()).isNotEqualTo(first);
    assertThat(read(image(tier, 1, 2, bytes(CHUNK, 2), 0), 0)).isEqualTo(bytes(CHUNK, 2));
    assertThatThrownBy(() -> read(image, 0))
        .isInstanceOfSatisfying(
            SpillException.class,
            gone -> assertThat(gone.reason()).isEqualTo(SpillException.Reason.UNREADABLE));
  }

  @Test
  void aFileThatCannotBeRemovedCountsUntilItIs() throws Exception {
    AtomicInteger failing = new AtomicInteger(1);
    AtomicBoolean disk = new AtomicBoolean(false);
    CountDownLatch mayTry = new CountDownLatch(1);
    CountDownLatch told = new CountDownLatch(1);
    DiskTier tier =
        open(
            DiskOptions.of(directory, PLENTY, CHUNK)
                .withRoomAgain(told::countDown)
                .withFaults(
                    real ->
                        new HookedFiles(
                            real,
                            (call, file) -> {
                              awaitIfTrial(file, mayTry);
                              if (call.equals("delete") && failing.getAndDecrement() > 0) {
                                throw new IOException("Input/output error");
                              }
                              if (call.equals("create") && disk.compareAndSet(true, false)) {
                                throw new IOException("Input/output error");
                              }
                            })));
    DiskImage image = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    image.close().await();
    assertThat(tier.stats().bytes()).isEqualTo(image.fileBytes());
    assertThat(image.path()).exists();
    disk.set(true);
    Writing writing = begin(tier, 1, 1, 1);
    writing.abandon().await();
    assertThat(tier.begin(1, 1, 1)).isNull();
    mayTry.countDown();
    told.await();
    assertThat(image.path()).doesNotExist();
    assertThat(tier.stats().bytes()).isZero();
  }

  @Test
  void whatCannotBeRemovedAtTheEndIsLeftToTheNextProcess() throws IOException {
    DiskTier tier =
        hooked(
            (call, _) -> {
              if (call.equals("delete")) {
                throw new IOException("Input/output error");
              }
            });
    DiskImage image = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    tier.close();
    assertThat(image.path()).exists();
    assertThat(tier.path().resolve(DiskDirectory.LOCK)).exists();
    // As another process would see it.
    Path left = directory.resolve(DiskDirectory.PREFIX + "7-1-" + DiskDirectory.boot() + "-00");
    Files.move(tier.path(), left);
    DiskTier next = open();
    assertThat(next.stats().leftovers()).isEqualTo(1);
    assertThat(left).doesNotExist();
  }

  // --- closing --------------------------------------------------------------------------------

  @Test
  void anImageGoesAfterItsReads() throws Exception {
    CountDownLatch reading = new CountDownLatch(1);
    CountDownLatch go = new CountDownLatch(1);
    DiskTier tier = held("read", reading, go);
    DiskImage image = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    MemorySegment back = Arena.ofAuto().allocate(CHUNK);
    Completion<Void> read = image.read(0, back);
    reading.await();
    Completion<Void> gone = image.close();
    assertThat(gone.isDone()).isFalse();
    assertThat(image.path()).exists();
    go.countDown();
    read.await();
    assertThat(back.mismatch(MemorySegment.ofArray(bytes(CHUNK, 1)))).isEqualTo(-1);
    gone.await();
    assertThat(image.path()).doesNotExist();
  }

  @ParameterizedTest
  @ValueSource(strings = {"create", "write", "close", "rename"})
  void closingTheTierWhileItWritesEndsAll(String where) throws Exception {
    CountDownLatch writing = new CountDownLatch(1);
    CountDownLatch go = new CountDownLatch(1);
    DiskTier tier = held(where, writing, go);
    Writing first = begin(tier, 1, 1, 2 * CHUNK);
    MemorySegment memory = native_(bytes(2 * CHUNK, 1), 0);
    Completion<Void> one = first.write(0, memory.asSlice(0, CHUNK));
    Completion<Void> two = first.write(CHUNK, memory.asSlice(CHUNK));
    Completion<DiskImage> published = first.publish();
    writing.await();
    Completion<Void> closed = tier.shutDown();
    assertThat(closed.isDone()).isFalse();
    go.countDown();
    closed.await();
    assertThat(one.isDone() && two.isDone()).isTrue();
    assertThatThrownBy(published::await)
        .isInstanceOfSatisfying(
            SpillException.class,
            failure -> assertThat(failure.reason()).isEqualTo(SpillException.Reason.CLOSED));
    assertThat(directory).isEmptyDirectory();
  }

  @Test
  void closingTheTierWhileItReadsEndsAll() throws Exception {
    CountDownLatch reading = new CountDownLatch(1);
    CountDownLatch go = new CountDownLatch(1);
    DiskTier tier =
        open(
            DiskOptions.of(directory, PLENTY, CHUNK)
                .withThreads(1)
                .withFaults(real -> new HookedFiles(real, hold("read", reading, go))));
    DiskImage image = image(tier, 1, 1, bytes(CHUNK, 1), 0);
    Completion<Void> underWay = image.read(0, Arena.ofAuto().allocate(CHUNK));
    reading.await();
    Completion<Void> queued = image.read(0, Arena.ofAuto().allocate(CHUNK));
    Completion<Void> closed = tier.shutDown();
    assertThat(queued.isDone()).isFalse();
    go.countDown();
    closed.await();
    underWay.await();
    for (Completion<Void> late : List.of(queued, image.read(0, Arena.ofAuto().allocate(CHUNK)))) {
      assertThatThrownBy(late::await)
          .isInstanceOfSatisfying(
              SpillException.class,
              failure -> assertThat(failure.reason()).isEqualTo(SpillException.Reason.CLOSED));
    }
  }

  private DiskTier held(String where, CountDownLatch reached, CountDownLatch go) {
    return hooked(hold(where, reached, go));
  }

  /** A slow disk: the first such call waits. */
  private static HookedFiles.Hook hold(String where, CountDownLatch reached, CountDownLatch go) {
    return (call, _) -> {
      if (call.equals(where)) {
        reached.countDown();
        await(go);
      }
    };
  }

  // --- many at once ---------------------------------------------------------------------------

  @ParameterizedTest
  @ValueSource(longs = {1, 2, 3})
  @Timeout(400) // some thousand calls of a disk that others may use
  void manyCallersOnADiskThatFailsGetWhatTheyWroteOrAreTold(long seed) throws Exception {
    int callers = 6;
    AtomicLong calls = new AtomicLong();
    AtomicBoolean failing = new AtomicBoolean(true);
    DiskTier tier =
        open(
            DiskOptions.of(directory, 40L * CHUNK, CHUNK)
                .withBackoff(Duration.ofNanos(1000), Duration.ofMillis(1))
                .withFaults(
                    real ->
                        new HookedFiles(
                            real,
                            (call, _) -> {
                              // No order among threads, but as many faults in every run.
                              long count = calls.getAndIncrement();
                              if (failing.get() && new Random(31 * seed + count).nextInt(40) == 0) {
                                throw new IOException(call + ": Input/output error");
                              }
                            })));
    AtomicInteger whole = new AtomicInteger();
    AtomicReference<Throwable> wrong = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < callers; i++) {
      Random random = new Random(1000 * seed + i);
      Runnable body =
          () -> {
            try {
              for (int round = 0; round < 200; round++) {
                whole.addAndGet(oneRound(tier, random) ? 1 : 0);
              }
            } catch (RuntimeException | Error thrown) {
              wrong.set(thrown);
            }
          };
      threads.add(i % 2 == 0 ? Thread.ofVirtual().start(body) : Thread.ofPlatform().start(body));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    failing.set(false);
    assertThat(wrong.get()).isNull();
    assertThat(whole.get()).isPositive();
    tier.close();
    assertThat(tier.stats().images()).isZero();
  }

  /** Whether an image was made and read back. */
  private static boolean oneRound(DiskTier tier, Random random) {
    byte[] bytes = bytes(1 + random.nextInt(4 * CHUNK), random.nextLong());
    Writing writing = tier.begin(random.nextInt(5), random.nextInt(), bytes.length);
    if (writing == null) {
      LockSupport.parkNanos(100_000);
      return false;
    }
    for (int at = 0; at < bytes.length; at += CHUNK) {
      writing.write(
          at, native_(Arrays.copyOfRange(bytes, at, Math.min(bytes.length, at + CHUNK)), 0));
    }
    if (random.nextInt(8) == 0) {
      writing.abandon();
      return false;
    }
    DiskImage image;
    try {
      image = writing.publish().await();
    } catch (SpillException told) {
      assertThat(told.isRetryable()).isTrue();
      return false;
    }
    try {
      assertThat(Arrays.equals(read(image, 0), bytes)).isTrue();
      return true;
    } catch (SpillException told) {
      assertThat(told.reason()).isEqualTo(SpillException.Reason.UNREADABLE);
      return false;
    } finally {
      if (random.nextBoolean()) {
        image.read(0, Arena.ofAuto().allocate(Math.min(CHUNK, bytes.length)));
      }
      image.close();
    }
  }

  // --- a real disk that is full ----------------------------------------------------------------

  @Test
  void aRealDiskThatIsFullOrReadOnlyIsTriedAgain() throws Exception {
    Path mount = Files.createDirectory(directory.resolve("small"));
    assumeTrue(
        command("mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", mount.toString()),
        "only root can mount a small file system");
    try (AutoCloseable _ = () -> unmount(mount)) {
      AtomicInteger told = new AtomicInteger();
      DiskTier tier =
          open(DiskOptions.of(mount, PLENTY, CHUNK).withRoomAgain(told::incrementAndGet));
      Path ballast = Files.write(mount.resolve("ballast"), new byte[900 << 10]);
      DiskImage small = image(tier, 1, 1, bytes(CHUNK, 1), 0);
      assertThatThrownBy(() -> image(tier, 2, 1, bytes(4 * CHUNK, 2), 0))
          .isInstanceOfSatisfying(
              SpillException.class,
              failure -> assertThat(failure.reason()).isEqualTo(SpillException.Reason.FULL));
      assertThat(read(small, 0)).isEqualTo(bytes(CHUNK, 1));
      Files.delete(ballast);
      DiskImage large = againImage(tier, bytes(4 * CHUNK, 2));
      assertThat(read(large, 0)).isEqualTo(bytes(4 * CHUNK, 2));

      // Over itself: a file system with a file that is open to be written is not made read-only.
      String here = mount.toString();
      assertThat(command("mount", "--bind", here, here)).isTrue();
      soon("mount", "-o", "remount,bind,ro", here);
      assertThatThrownBy(() -> image(tier, 3, 1, bytes(CHUNK, 3), 0))
          .isInstanceOfSatisfying(
              SpillException.class,
              failure -> assertThat(failure.reason()).isEqualTo(SpillException.Reason.UNUSABLE))
          .hasMessageContaining("Read-only");
      assertThat(read(large, 0)).isEqualTo(bytes(4 * CHUNK, 2));
      soon("umount", here);
      assertThat(read(againImage(tier, bytes(CHUNK, 3)), 0)).isEqualTo(bytes(CHUNK, 3));
      tier.close();
      assertThat(mount).isEmptyDirectory();
    }
  }

  /** As often as it is mounted. */
  private void unmount(Path mount) throws Exception {
    tiers.forEach(DiskTier::close);
    int times = 0;
    while (command("umount", mount.toString())) {
      times++;
    }
    assertThat(times).isPositive();
    Files.delete(mount);
  }

  /** Tries until the tier takes it. */
  private static DiskImage againImage(DiskTier tier, byte[] bytes) {
    long end = System.nanoTime() + 60_000_000_000L;
    while (System.nanoTime() < end) {
      try {
        if (tier.health() == DiskTier.Health.USABLE) {
          return image(tier, 9, 9, bytes, 0);
        }
      } catch (FairleadException stillFull) {
        assertThat(stillFull).isInstanceOf(SpillException.class);
      }
      LockSupport.parkNanos(100_000);
    }
    throw new AssertionError("never usable again: " + tier.failure());
  }

  /** The tier may close a file a moment after what was done with it has ended. */
  private static void soon(String... words) throws Exception {
    long end = System.nanoTime() + 60_000_000_000L;
    while (!command(words)) {
      assertThat(System.nanoTime() - end).as(String.join(" ", words)).isNegative();
      LockSupport.parkNanos(1_000_000);
    }
  }

  private static boolean command(String... words) throws Exception {
    try {
      return new ProcessBuilder(words)
              .redirectErrorStream(true)
              .redirectOutput(ProcessBuilder.Redirect.DISCARD)
              .start()
              .waitFor()
          == 0;
    } catch (IOException none) {
      return false;
    }
  }

  // --- helpers --------------------------------------------------------------------------------

  static byte[] bytes(long length, long seed) {
    byte[] bytes = new byte[(int) length];
    new Random(seed).nextBytes(bytes);
    return bytes;
  }

  /** Aligned but for {@code off}. */
  private static MemorySegment native_(byte[] bytes, int off) {
    MemorySegment memory = Arena.ofAuto().allocate(bytes.length + off, 4096).asSlice(off);
    return memory.copyFrom(MemorySegment.ofArray(bytes));
  }

  private static Writing begin(DiskTier tier, long storage, long generation, long length) {
    return Objects.requireNonNull(tier.begin(storage, generation, length), "no room");
  }

  static DiskImage image(DiskTier tier, long storage, long generation, byte[] bytes, int off) {
    Writing writing = begin(tier, storage, generation, bytes.length);
    for (int at = 0; at < bytes.length; at += CHUNK) {
      byte[] chunk = Arrays.copyOfRange(bytes, at, Math.min(bytes.length, at + CHUNK));
      writing.write(at, native_(chunk, off));
    }
    return writing.publish().await();
  }

  private static byte[] read(DiskImage image, int off) {
    MemorySegment back = Arena.ofAuto().allocate(image.bytes() + off, 4096).asSlice(off);
    List<Completion<Void>> reads = new ArrayList<>();
    for (long at = 0; at < image.bytes(); at += CHUNK) {
      reads.add(image.read(at, back.asSlice(at, Math.min(CHUNK, image.bytes() - at))));
    }
    Completion.all(reads).await();
    return back.toArray(ValueLayout.JAVA_BYTE);
  }

  private static void flip(Path file, long at) throws IOException {
    try (RandomAccessFile open = new RandomAccessFile(file.toFile(), "rw")) {
      open.seek(at);
      int was = open.read();
      open.seek(at);
      open.write(was ^ 4);
    }
  }

  private static List<String> names(DiskTier tier) throws IOException {
    try (Stream<Path> files = Files.list(tier.path())) {
      return files.map(file -> file.getFileName().toString()).toList();
    }
  }
}
