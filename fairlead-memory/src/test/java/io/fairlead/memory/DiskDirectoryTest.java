package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.fault.Mutant;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Whose directories are taken, and what becomes of those of the dead. */
class DiskDirectoryTest {
  private static final int CHUNK = 64 << 10;
  private static final long PLENTY = 64L << 20;

  @TempDir Path directory;
  private final List<Process> children = new ArrayList<>();

  @AfterEach
  void endChildren() throws InterruptedException {
    for (Process child : children) {
      child.destroyForcibly().waitFor();
    }
  }

  private DiskTier open(Path given) {
    return DiskTier.open(given, PLENTY, CHUNK);
  }

  private void refuses(Path given, String... texts) {
    assertThatThrownBy(() -> open(given))
        .isInstanceOfSatisfying(
            SpillException.class,
            refused -> {
              assertThat(refused.reason()).isEqualTo(SpillException.Reason.REFUSED);
              assertThat(refused.isRetryable()).isFalse();
              assertThat(refused.path().toAbsolutePath()).isEqualTo(given.toAbsolutePath());
              assertThat(refused).hasMessageContainingAll(texts);
            });
  }

  private static void chmod(Path path, String permissions) throws IOException {
    Files.setPosixFilePermissions(path, PosixFilePermissions.fromString(permissions));
  }

  // --- whose are taken ------------------------------------------------------------------------

  @Test
  void oneThatIsNotThereIsRefused() {
    refuses(directory.resolve("none"), "no such directory", "mkdir -m 700 '");
  }

  @Test
  void aFileIsRefused() throws IOException {
    refuses(Files.createFile(directory.resolve("file")), "it is no directory");
  }

  @Test
  void oneThatCannotBeListedFailsAsTheFileSystemSays() {
    IOException broken = new IOException("Structure needs cleaning");
    DirectoryStream<Path> stream =
        new DirectoryStream<>() {
          @Override
          public Iterator<Path> iterator() {
            return new Iterator<>() {
              private int left = 1;

              @Override
              public boolean hasNext() {
                if (left == 0) {
                  throw new DirectoryIteratorException(broken);
                }
                return true;
              }

              @Override
              public Path next() {
                left--;
                return directory;
              }
            };
          }

          @Override
          public void close() {}
        };
    assertThatThrownBy(() -> DiskDirectory.all(stream)).isSameAs(broken);
  }

  @ParameterizedTest
  @ValueSource(strings = {"rwxrwx---", "rwx---rwx", "rwx----w-"})
  void oneThatOthersCanWriteToIsRefused(String permissions) throws IOException {
    Path given = Files.createDirectory(directory.resolve("open"));
    chmod(given, permissions);
    refuses(given, "others can write to it", "mkdir -m 700 '" + given + "/spill'", "chmod go-w");
    assertThat(given).isEmptyDirectory();
  }

  @Test
  void oneWithTheStickyBitIsTaken() throws Exception {
    Path given = Files.createDirectory(directory.resolve("sticky"));
    assertThat(run("chmod", "1777", given.toString())).isZero();
    try (DiskTier tier = open(given)) {
      assertThat(tier.path().getParent()).isEqualTo(given);
    }
  }

  @Test
  void oneBelowADirectoryThatOthersCanWriteToIsRefused() throws IOException {
    Path above = Files.createDirectory(directory.resolve("open"));
    Path given = Files.createDirectory(above.resolve("mine"));
    chmod(given, "rwx------");
    chmod(above, "rwxrwxrwx");
    refuses(given, "others can write to '" + above + "' above it", "chmod o-w");
    chmod(above, "rwxrwxr-x"); // a group's, as shared projects have it
    open(given).close();
  }

  @Test
  void aLinkOnTheWayIsRefused() throws IOException {
    Path real = Files.createDirectories(directory.resolve("real/below"));
    Path link = Files.createSymbolicLink(directory.resolve("link"), directory.resolve("real"));
    refuses(link, "symbolic link");
    refuses(link.resolve("below"), "symbolic link", "if '" + real + "' is meant, give that");
    Files.delete(link);
    refuses(Files.createSymbolicLink(link, directory.resolve("nowhere")), "it is a symbolic link");
  }

  @Test
  void aLinkWithANameOfOursIsRefusedAndNotFollowed() throws IOException {
    Path target = Files.createDirectory(directory.resolve("target"));
    Path precious = Files.createFile(target.resolve("precious"));
    Path planted = Files.createSymbolicLink(directory.resolve(prefix() + "abc"), target);
    refuses(directory, "'" + planted + "' is a symbolic link", "remove it");
    Files.delete(planted);

    Path dead = Files.createDirectory(planted);
    Path lock = Files.createSymbolicLink(dead.resolve(DiskDirectory.LOCK), precious);
    refuses(directory, "'" + lock + "' is a symbolic link", "remove it");
    assertThat(precious).exists();
    assertThat(directory)
        .isDirectoryNotContaining("glob:**" + ProcessHandle.current().pid() + "-*");
  }

  @Test
  void anotherUsersDirectoryIsRefused() throws Exception {
    Path given = Files.createDirectory(directory.resolve("other"));
    assumeTrue(
        run("chown", "nobody", given.toString()) == 0, "only root can give a directory away");
    refuses(given, "it belongs to user ", "who could change");
    assertThat(given).isEmptyDirectory();
  }

  // --- of the dead ----------------------------------------------------------------------------

  @Test
  void whatADeadProcessLeftIsRemovedUnread() throws IOException {
    Path dead = leftover("00");
    Path link = Files.createSymbolicLink(dead.resolve("image-9"), directory.resolve("precious"));
    Path precious = Files.createFile(directory.resolve("precious"));
    Path unlocked = Files.createDirectory(directory.resolve(prefix() + "01"));
    Path notOurs = Files.createDirectory(directory.resolve("fairlead-other"));
    try (DiskTier tier = open(directory)) {
      assertThat(tier.stats().leftovers()).isEqualTo(1);
      assertThat(tier.stats().leftoverBytes()).isEqualTo(3000);
      assertThat(dead).doesNotExist();
      assertThat(link).doesNotExist();
      assertThat(unlocked).doesNotExist();
      assertThat(precious).exists();
      assertThat(notOurs).exists();
    }
  }

  @Test
  void whereLocksMayNotBeSeenOtherMachinesAreLeftAlone() {
    String name = DiskDirectory.PREFIX + "7-1796057668360-0123abcd-fa6f39c0ef5d8cd1";
    assertThat(DiskDirectory.isLockTold(name, "0123abcd", "nfs4")).isTrue();
    assertThat(DiskDirectory.isLockTold(name, "ffffffff", "nfs4")).isFalse();
    assertThat(DiskDirectory.isLockTold(name, "7", "nfs4")).isFalse();
    assertThat(DiskDirectory.isLockTold(name, "ffffffff", "ext4")).isTrue();
    try (DiskTier tier = open(directory)) {
      assertThat(tier.path().getFileName().toString()).contains("-" + DiskDirectory.boot() + "-");
    }
  }

  @Test
  void whatIsStrangeInALeftoverStays() throws IOException {
    Path dead = leftover("00");
    Path strange = Files.createDirectories(dead.resolve("directory/with")).getParent();
    open(directory).close();
    assertThat(strange).exists();
  }

  /** Of a process that was here, of this boot, so that its lock tells everywhere. */
  private static String prefix() {
    return DiskDirectory.PREFIX + "99-1-" + DiskDirectory.boot() + "-";
  }

  private Path leftover(String name) throws IOException {
    Path dead = Files.createDirectory(directory.resolve(prefix() + name));
    Files.createFile(dead.resolve(DiskDirectory.LOCK));
    Files.write(dead.resolve("image-0"), new byte[1000]);
    Files.write(dead.resolve("image-1.draft"), new byte[2000]);
    return dead;
  }

  @Test
  void twoTiersOfOneProcessLeaveEachOtherAlone() {
    try (DiskTier first = open(directory)) {
      DiskImage image = DiskTierTest.image(first, 1, 1, DiskTierTest.bytes(CHUNK, 1), 0);
      try (DiskTier second = open(directory)) {
        assertThat(second.stats().leftovers()).isZero();
        assertThat(second.path()).isNotEqualTo(first.path());
      }
      image.read(0, Arena.ofAuto().allocate(CHUNK)).await();
    }
    assertThat(directory).isEmptyDirectory();
  }

  @Test
  void manyThatOpenAndCloseAtOnceLeaveEachOtherAlone() throws Exception {
    leftover("00");
    leftover("01");
    int count = 4;
    CyclicBarrier barrier = new CyclicBarrier(count);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      threads.add(
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      barrier.await();
                      for (int round = 0; round < 20; round++) {
                        try (DiskTier tier = open(directory)) {
                          DiskTierTest.image(tier, 1, 1, DiskTierTest.bytes(10, 1), 0)
                              .read(0, Arena.ofAuto().allocate(10))
                              .await();
                        }
                      }
                    } catch (Exception | Error thrown) {
                      failure.set(thrown);
                    }
                  }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(failure.get()).isNull();
    assertThat(directory).isEmptyDirectory();
  }

  @Test
  void aLivingProcessIsLeftAloneAndAKilledOneIsCleanedUp() throws Exception {
    Process child = child(ProcessBuilder.Redirect.INHERIT);
    Path its = Path.of(Objects.requireNonNull(lineOf(child)));
    assertThat(its).isDirectoryContaining("glob:**/image-0");
    try (DiskTier tier = open(directory)) {
      assertThat(tier.stats().leftovers()).isZero();
      assertThat(its).isDirectoryContaining("glob:**/image-0");
      assertThat(its).isDirectoryContaining("glob:**/*.draft");
    }
    kill(child);
    assertThat(its).isDirectoryContaining("glob:**/*.draft");
    try (DiskTier tier = open(directory)) {
      assertThat(tier.stats().leftovers()).isEqualTo(1);
      assertThat(tier.stats().leftoverBytes()).isGreaterThan(CHUNK);
      assertThat(its).doesNotExist();
    }
    assertThat(directory).isEmptyDirectory();
  }

  @Test
  void aCleanerThatDoesNotAskForTheLockIsFound() throws Exception {
    Process child = child(ProcessBuilder.Redirect.DISCARD); // it is robbed, and says so
    Path its = Path.of(Objects.requireNonNull(lineOf(child)));
    try (var _ = Mutant.enable("disk.living-cleaned")) {
      open(directory).close();
    }
    assertThat(its.resolve("image-0")).doesNotExist();
  }

  @Test
  void aDirectoryThatIsNotSafeAnyMoreIsUsedNoMore() throws Exception {
    Path given = Files.createDirectory(directory.resolve("given"));
    chmod(given, "rwx------");
    try (DiskTier tier = open(given)) {
      DiskTierTest.image(tier, 1, 1, DiskTierTest.bytes(10, 1), 0);
      chmod(given, "rwxrwxrwx");
      Files.delete(tier.path().resolve("image-0"));
      DiskImage lost = DiskTierTest.image(tier, 1, 2, DiskTierTest.bytes(10, 1), 0);
      Files.delete(lost.path());
      assertThatThrownBy(() -> lost.read(0, Arena.ofAuto().allocate(10)).await())
          .isInstanceOf(SpillException.class);
      long tried = tier.stats().trials();
      until(() -> tier.stats().trials() >= tried + 2);
      assertThat(tier.health()).isEqualTo(DiskTier.Health.UNUSABLE);
      assertThat(tier.begin(1, 3, 10)).isNull();
      assertThat(Objects.requireNonNull(tier.failure())).hasMessageContaining("others can write");
      chmod(given, "rwx------");
      until(() -> tier.health() == DiskTier.Health.USABLE);
    }
  }

  private static void until(BooleanSupplier condition) {
    long end = System.nanoTime() + 60_000_000_000L;
    while (!condition.getAsBoolean()) {
      assertThat(System.nanoTime()).as("60 s are not over").isLessThan(end);
      LockSupport.parkNanos(100_000);
    }
  }

  // --- children -------------------------------------------------------------------------------

  private Process child(ProcessBuilder.Redirect errors) throws IOException {
    Process child =
        new ProcessBuilder(
                ProcessHandle.current().info().command().orElseThrow(),
                "-Xmx64m",
                "-cp",
                System.getProperty("java.class.path"),
                Spilling.class.getName(),
                directory.toString())
            .redirectError(errors)
            .start();
    children.add(child);
    return child;
  }

  private static String lineOf(Process child) throws IOException {
    return new BufferedReader(new InputStreamReader(child.getInputStream(), StandardCharsets.UTF_8))
        .readLine();
  }

  /** As {@code kill -9} does. */
  private static void kill(Process child) throws InterruptedException {
    child.destroyForcibly().waitFor();
  }

  private static int run(String... words) throws Exception {
    return new ProcessBuilder(words)
        .redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.DISCARD)
        .start()
        .waitFor();
  }

  /** Spills for ever, until it is killed. */
  static final class Spilling {
    public static void main(String[] arguments) {
      DiskTier tier = DiskTier.open(Path.of(arguments[0]), PLENTY, CHUNK);
      DiskTierTest.image(tier, 1, 1, DiskTierTest.bytes(CHUNK, 1), 0);
      MemorySegment chunk = Arena.ofAuto().allocate(CHUNK, 4096);
      Writing begun = Objects.requireNonNull(tier.begin(2, 1, 100L * CHUNK));
      begun.write(0, chunk).await();
      System.out.println(tier.path());
      for (int i = 1; ; i = 1 + i % 99) {
        Writing next = Objects.requireNonNull(tier.begin(3, i, 2L * CHUNK));
        next.write(0, chunk).await();
        next.abandon().await();
      }
    }
  }
}
