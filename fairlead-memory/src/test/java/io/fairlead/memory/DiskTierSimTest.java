package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * A tier on a disk that fails in every way, from a seed, one job at a time in any order. A read
 * either gives what was written or fails; it fails if, and only if, something was wrong; an image
 * is there only if all went well; and in the end nothing is left.
 */
class DiskTierSimTest {
  private static final int WORLDS = 12;
  private static final int STEPS = 2000;
  private static final int CHUNK = 8192;
  private static final long BYTES_MAX = 40L * CHUNK;

  /** Of the seeds that are always the same. */
  private static final int FAULTS_MIN = 10_000;

  /** Each world would warn. Kept here: the log manager does not. */
  private static final Logger LOG = Logger.getLogger(DiskTier.class.getName());

  @TempDir Path directory;
  private long allRewritten;

  @BeforeAll
  static void silence() {
    LOG.setLevel(Level.OFF);
  }

  @AfterAll
  static void unsilence() {
    LOG.setLevel(null);
  }

  static LongStream seeds() {
    Long wanted = Long.getLong("fairlead.seed");
    if (wanted != null) {
      return LongStream.of(wanted);
    }
    long fresh = System.nanoTime() & 0xffff_ffffL;
    System.out.println("fresh seed: -Dfairlead.seed=" + fresh);
    int more = Boolean.getBoolean("fairlead.long") ? 100 : 0;
    return LongStream.concat(LongStream.of(fresh), LongStream.range(2, 2 + more));
  }

  @Test
  void everyFaultOfTenThousandIsFoundAndNothingWrongIsReturned() {
    Map<String, Integer> injected = new TreeMap<>();
    for (long seed = 1; total(injected) < FAULTS_MIN; seed++) {
      run(seed).forEach((kind, count) -> injected.merge(kind, count, Integer::sum));
      assertThat(seed).as("seeds that were needed").isLessThan(20);
    }
    System.out.println("disk faults: " + total(injected) + " " + injected);
    assertThat(allRewritten).as("images in files of others that were gone").isGreaterThan(100);
  }

  @ParameterizedTest
  @MethodSource("seeds")
  void noOtherSeedFindsWhatTheseDoNot(long seed) {
    assertThat(total(run(seed))).isPositive();
  }

  @ParameterizedTest
  @CsvSource({
    "disk.sum-unchecked, read in spite of a fault",
    "disk.header-unchecked, read in spite of a fault",
    "disk.padding-unchecked, read in spite of a fault",
    "disk.size-unchecked, published although its size is wrong",
    "disk.short-write-accepted, nothing was wrong and",
    "disk.short-read-accepted, read in spite of a fault",
    "disk.deleted-while-read, nothing was wrong and",
    "disk.error-forgotten, published although a write failed",
    "disk.bytes-leaked, bytes at the end"
  })
  void aTierThatIsWrongIsFound(String mutant, String complaint) {
    try (var _ = Mutant.enable(mutant)) {
      assertThatThrownBy(() -> run(1))
          .isInstanceOf(AssertionError.class)
          .hasMessageContaining(complaint);
    }
  }

  private Map<String, Integer> run(long seed) {
    Map<String, Integer> injected = new HashMap<>();
    for (int world = 0; world < WORLDS; world++) {
      new World(1_000_003 * seed + world)
          .run()
          .forEach((kind, count) -> injected.merge(kind, count, Integer::sum));
    }
    return injected;
  }

  private static int total(Map<String, Integer> injected) {
    return injected.values().stream().mapToInt(Integer::intValue).sum();
  }

  /** A writing, and what it is to hold. */
  private static final class Draft {
    final Writing writing;
    final DiskFormat format;
    final byte[] bytes;
    final List<Integer> left = new ArrayList<>();
    final List<Completion<Void>> writes = new ArrayList<>();
    Completion<DiskImage> published;

    Draft(Writing writing, DiskFormat format, byte[] bytes) {
      this.writing = writing;
      this.format = format;
      this.bytes = bytes;
      for (int i = 0; i < format.chunks(); i++) {
        left.add(i);
      }
    }
  }

  private record Write(Draft draft, MemorySegment chunk, Completion<Void> done) {}

  private record Held(DiskImage image, Draft draft) {}

  private record Read(
      Held held, int index, MemorySegment into, boolean isRight, Completion<Void> done) {}

  private final class World {
    private final long seed;
    private final Random random;
    private final FaultyFiles files;
    private final DiskTier tier;
    private final List<Draft> drafts = new ArrayList<>();
    private final List<Draft> publishing = new ArrayList<>();
    private final List<Write> writes = new ArrayList<>();
    private final List<Read> reads = new ArrayList<>();
    private final List<Held> images = new ArrayList<>();
    private long generation;
    private long now;
    private int roomTold;
    private long rewritten;

    World(long seed) {
      this.seed = seed;
      this.random = new Random(seed);
      this.files = new FaultyFiles(random, random.nextBoolean() ? 1 : 4096, 8 + random.nextInt(60));
      this.tier =
          DiskTier.open(
              DiskOptions.of(directory, BYTES_MAX, CHUNK)
                  .withSpares(0, random.nextBoolean() ? 0 : BYTES_MAX / 2)
                  .withThreads(0)
                  .withClock(() -> now)
                  .withRoomAgain(() -> roomTold++)
                  .withFaults(_ -> files));
    }

    Map<String, Integer> run() {
      for (int step = 0; step < STEPS; step++) {
        act();
        check();
      }
      end();
      allRewritten += rewritten;
      return files.injected;
    }

    private void act() {
      switch (random.nextInt(20)) {
        case 0, 1 -> begin();
        case 2, 3, 4, 5 -> write();
        case 6, 7 -> publish();
        case 8 -> abandon();
        case 9, 10, 11 -> read();
        case 12 -> close();
        case 13 -> decay();
        case 14 -> now += random.nextLong(2_000_000_000L);
        case 15 -> {
          boolean full = random.nextInt(12) == 0;
          files.capacity = full ? BYTES_MAX / (1 + random.nextInt(20)) : Long.MAX_VALUE;
        }
        default -> {
          for (int i = random.nextInt(6); i > 0; i--) {
            step();
          }
        }
      }
    }

    private void begin() {
      int length = 1 + random.nextInt(5 * CHUNK);
      long storage = random.nextInt(4);
      Writing writing = tier.begin(storage, ++generation, length);
      if (writing != null) {
        byte[] bytes = new byte[length];
        // Few different ones, so that chunks of different images may be the same.
        new Random(random.nextInt(8)).nextBytes(bytes);
        int unit = Math.max(4096, files.alignment());
        drafts.add(
            new Draft(writing, new DiskFormat(storage, generation, length, CHUNK, unit), bytes));
      } else {
        DiskStats stats = tier.stats();
        boolean fits = stats.bytes() + stats.spareBytes() + length + 2 * 4096 <= BYTES_MAX;
        boolean usable = tier.health() == DiskTier.Health.USABLE;
        assertThat(fits && usable).as("%d: refused and could have begun", seed).isFalse();
        now += random.nextLong(500_000_000L);
      }
    }

    private void write() {
      if (drafts.isEmpty()) {
        return;
      }
      Draft draft = any(drafts);
      if (draft.left.isEmpty()) {
        return;
      }
      int index = draft.left.remove(/* index */ random.nextInt(draft.left.size()));
      int length = (int) draft.format.chunkLength(index);
      MemorySegment chunk = memory(length);
      MemorySegment.copy(
          MemorySegment.ofArray(draft.bytes), (long) index * CHUNK, chunk, 0, length);
      Completion<Void> done = draft.writing.write((long) index * CHUNK, chunk);
      draft.writes.add(done);
      writes.add(new Write(draft, chunk, done));
    }

    private MemorySegment memory(int length) {
      int off = random.nextInt(3) == 0 ? 8 : 0;
      return Arena.ofAuto().allocate(length + off, 4096).asSlice(off);
    }

    private void publish() {
      if (drafts.isEmpty()) {
        return;
      }
      Draft draft = any(drafts);
      while (!draft.left.isEmpty() && draft.left.size() < 3) {
        int index = draft.left.removeFirst();
        int length = (int) draft.format.chunkLength(index);
        MemorySegment chunk = memory(length);
        MemorySegment.copy(
            MemorySegment.ofArray(draft.bytes), (long) index * CHUNK, chunk, 0, length);
        Completion<Void> done = draft.writing.write((long) index * CHUNK, chunk);
        draft.writes.add(done);
        writes.add(new Write(draft, chunk, done));
      }
      if (draft.left.isEmpty()) {
        drafts.remove(draft);
        draft.published = draft.writing.publish();
        publishing.add(draft);
      }
    }

    private void abandon() {
      if (!drafts.isEmpty() && random.nextInt(4) == 0) {
        drafts.remove(random.nextInt(drafts.size())).writing.abandon();
      }
    }

    private void read() {
      if (!images.isEmpty()) {
        Held held = any(images);
        read(held, random.nextInt(held.draft.format.chunks()));
      }
    }

    private Read read(Held held, int index) {
      DiskFormat format = held.draft.format;
      MemorySegment into = memory((int) format.chunkLength(index));
      FaultyFiles.Stored file = files.files.get(held.image.path());
      // What is wrong now stays so: decay does not touch what is wrong, or is being read.
      boolean right =
          file != null
              && file.isRight(0, format.dataAt())
              && file.isRight(format.chunkAt(index), endOf(format, index));
      Read read = new Read(held, index, into, right, held.image.read((long) index * CHUNK, into));
      reads.add(read);
      return read;
    }

    /** With the zeros behind the last one. */
    private static long endOf(DiskFormat format, int index) {
      return index == format.chunks() - 1
          ? format.fileBytes()
          : format.chunkAt(index) + format.chunkLength(index);
    }

    private void close() {
      if (!images.isEmpty()) {
        images.remove(random.nextInt(images.size())).image.close();
      }
    }

    private void decay() {
      files.decay(
          images.stream()
              .filter(held -> reads.stream().noneMatch(read -> read.held.equals(held)))
              .map(held -> held.image.path())
              .toList());
    }

    private boolean step() {
      files.fatal.clear();
      boolean stepped = tier.step(random);
      check();
      return stepped;
    }

    private void check() {
      boolean struck = !files.fatal.isEmpty();
      writes.removeIf(
          write -> {
            if (!write.done.isDone()) {
              return false;
            }
            requireTyped(write.done);
            write.chunk.fill((byte) 0x77); // given back: the next user writes to it
            return true;
          });
      publishing.removeIf(
          draft -> {
            if (!draft.published.isDone()) {
              return false;
            }
            published(draft);
            return true;
          });
      reads.removeIf(
          read -> {
            if (!read.done.isDone()) {
              return false;
            }
            checkRead(read, struck);
            return true;
          });
      DiskStats stats = tier.stats();
      assertThat(stats.bytes() + stats.spareBytes())
          .as("%d: bytes", seed)
          .isBetween(stats.bytes(), BYTES_MAX);
      rewritten = stats.rewritten();
      files.fatal.clear();
    }

    private void published(Draft draft) {
      if (draft.published.cause() != null) {
        requireTyped(draft.published);
        return;
      }
      DiskImage image = draft.published.getNow();
      assertThat(draft.writes)
          .as("%d: published although a write failed", seed)
          .allSatisfy(write -> assertThat(write.cause()).isNull());
      assertThat(files.fatal).as("%d: published in spite of", seed).isEmpty();
      FaultyFiles.Stored file = files.files.get(image.path());
      assertThat(file).as("%d: published without a file", seed).isNotNull();
      assertThat(file.real.length)
          .as("%d: published although its size is wrong", seed)
          .isEqualTo(file.right.length);
      assertThat((long) file.right.length).as("%d: size", seed).isEqualTo(image.fileBytes());
      images.add(new Held(image, draft));
    }

    private void checkRead(Read read, boolean struck) {
      boolean failed = read.done.cause() != null;
      if (failed) {
        requireTyped(read.done);
        assertThat(!read.isRight || struck)
            .as("%d: nothing was wrong and %s", seed, read.done.cause())
            .isTrue();
      } else {
        assertThat(read.isRight && !struck).as("%d: read in spite of a fault", seed).isTrue();
        MemorySegment expected =
            MemorySegment.ofArray(read.held.draft.bytes)
                .asSlice((long) read.index * CHUNK, read.into.byteSize());
        assertThat(expected.mismatch(read.into)).as("%d: wrong bytes", seed).isEqualTo(-1);
      }
    }

    private void requireTyped(Completion<?> done) {
      if (done.cause() != null) {
        assertThat(done.cause()).as("%d", seed).isInstanceOf(SpillException.class);
        assertThat(((SpillException) done.cause()).reason())
            .isNotEqualTo(SpillException.Reason.CLOSED);
      }
    }

    /** The disk works again: what is right can be read, the rest is found, and all goes away. */
    private void end() {
      files.oneIn = 0;
      files.capacity = Long.MAX_VALUE;
      settle();
      assertThat(tier.health()).as("%d: works again", seed).isEqualTo(DiskTier.Health.USABLE);
      for (Held held : images) {
        for (int i = 0; i < held.draft.format.chunks(); i++) {
          read(held, i);
        }
        settle();
      }
      settle();
      assertThat(reads).isEmpty();
      int half = images.size() / 2;
      images.subList(0, half).forEach(held -> held.image.close());
      Completion<Void> closed = tier.shutDown();
      drafts.forEach(
          draft -> assertThat(draft.writing.publish().cause()).isInstanceOf(SpillException.class));
      writes.clear();
      settle();
      assertThat(closed.isDone()).as("%d: closed", seed).isTrue();
      assertThat(files.files).as("%d: files", seed).isEmpty();
      assertThat(files.open).as("%d: open files", seed).isZero();
      assertThat(tier.stats().bytes()).as("%d: bytes at the end", seed).isZero();
      assertThat(tier.stats().spareBytes()).as("%d: spares at the end", seed).isZero();
      assertThat(tier.stats().images()).as("%d: images at the end", seed).isZero();
      assertThat(directory.toFile().list()).as("%d: left behind", seed).isEmpty();
    }

    private void settle() {
      for (int i = 0; i < 4; i++) {
        now += 1_000_000_000L;
        while (step()) {
          now++;
        }
      }
    }

    private <T> T any(List<T> list) {
      return list.get(random.nextInt(list.size()));
    }
  }
}
