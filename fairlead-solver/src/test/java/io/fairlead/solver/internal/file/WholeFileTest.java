package io.fairlead.solver.internal.file;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class WholeFileTest {
  @TempDir Path folder;

  private void write(Path file, String text) throws IOException {
    WholeFile.write(file, out -> out.write(text.getBytes(UTF_8)));
  }

  @AfterEach
  void nothingUnfinishedIsLeft() throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      assertThat(files).noneMatch(file -> file.toString().endsWith(".part"));
    }
  }

  @Test
  void aPipeIsWrittenToAndStaysAPipe() throws Exception {
    Path pipe = pipe();
    CompletableFuture<String> read = reading(pipe);
    write(pipe, "hello\n");
    assertThat(read.get(30, TimeUnit.SECONDS)).isEqualTo("hello\n");
    assertThat(Files.readAttributes(pipe, "isOther")).containsEntry("isOther", true);
  }

  @Test
  void aLinkToAPipeLeadsIntoThePipe() throws Exception {
    Path pipe = pipe();
    Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("pipe"));
    CompletableFuture<String> read = reading(pipe);
    write(link, "hello\n");
    assertThat(read.get(30, TimeUnit.SECONDS)).isEqualTo("hello\n");
    assertThat(link).isSymbolicLink();
  }

  @Test
  void aLinkIsFollowedToItsFileAndToOneThatIsNotThereYet() throws IOException {
    Path sub = Files.createDirectory(folder.resolve("sub"));
    Path file = Files.writeString(sub.resolve("old"), "old");
    for (String target : List.of("old", "new")) {
      Path inner = Files.createSymbolicLink(sub.resolve(target + "-link"), Path.of(target));
      Path link =
          Files.createSymbolicLink(folder.resolve(target), folder.relativize(inner.normalize()));
      write(link, "written");
      assertThat(link).isSymbolicLink();
      assertThat(inner).isSymbolicLink();
      assertThat(sub.resolve(target)).isRegularFile().hasContent("written");
    }
    assertThat(file).hasContent("written");
  }

  @Test
  void linksThatLeadNowhereAreRefused() throws IOException {
    Path link = Files.createSymbolicLink(folder.resolve("a"), Path.of("a"));
    assertThatThrownBy(() -> write(link, "x")).hasMessageContaining("links lead nowhere");
    Path lost = Files.createSymbolicLink(folder.resolve("b"), Path.of("no/such/file"));
    assertThatThrownBy(() -> WholeFile.requireWritable(lost)).hasMessageContaining("no folder");
  }

  @Test
  void aReadOnlyFileIsRefused() throws IOException {
    Path file = Files.writeString(folder.resolve("precious"), "old");
    assumeModes(file);
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("r--r--r--"));
    assertThatThrownBy(() -> WholeFile.requireWritable(file)).hasMessageContaining("read-only");
    assertThatThrownBy(() -> write(file, "new")).hasMessageContaining("read-only");
    assertThat(file).hasContent("old");
  }

  @Test
  void reasonsArePlainWordsWithoutTheNameOfAFile() {
    assertThat(WholeFile.reason(new AccessDeniedException("x"))).isEqualTo("permission denied");
    assertThat(WholeFile.reason(new NoSuchFileException("x"))).isEqualTo("its folder is gone");
    assertThat(WholeFile.reason(new FileSystemException("x", null, "Read-only file system")))
        .isEqualTo("Read-only file system");
    assertThat(WholeFile.reason(new IOException("No space left on device")))
        .isEqualTo("No space left on device");
  }

  @Test
  void aFolderIsRefused() {
    assertThatThrownBy(() -> write(folder, "new")).hasMessageContaining("it is a folder");
  }

  @Test
  void aNewFileHasTheModeOfAnyNewFile() throws IOException {
    Path other = Files.createFile(folder.resolve("other"));
    assumeModes(other);
    Path file = folder.resolve("new");
    write(file, "new");
    assertThat(Files.getPosixFilePermissions(file)).isEqualTo(Files.getPosixFilePermissions(other));
  }

  @Test
  void anOldFileKeepsItsMode() throws IOException {
    Path file = Files.writeString(folder.resolve("file"), "old");
    assumeModes(file);
    for (String mode : List.of("rw-rw-r--", "rw-------", "rwxr-x--x")) {
      Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(mode));
      write(file, mode);
      assertThat(file).hasContent(mode);
      assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(file)))
          .isEqualTo(mode);
    }
  }

  @Test
  void whatWasThereSurvivesAFailure() throws IOException {
    Path file = Files.writeString(folder.resolve("file"), "old");
    assertThatThrownBy(
            () ->
                WholeFile.write(
                    file,
                    out -> {
                      out.write(new byte[1 << 20]);
                      throw new IOException("no space left");
                    }))
        .hasMessage("no space left");
    assertThat(file).hasContent("old");
  }

  @Test
  void aProcessThatIsToldToEndLeavesNothing() throws Exception {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    Process process =
        new ProcessBuilder(
                java,
                "-cp",
                System.getProperty("java.class.path"),
                Endless.class.getName(),
                folder.resolve("file").toString())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    try (BufferedReader out = process.inputReader()) {
      assertThat(out.readLine()).isEqualTo("writing");
      try (Stream<Path> files = Files.list(folder)) {
        assertThat(files).anyMatch(file -> file.toString().endsWith(".part"));
      }
      process.destroy();
      assertThat(process.waitFor(30, TimeUnit.SECONDS)).isTrue();
    } finally {
      process.destroyForcibly();
    }
    assertThat(folder).isEmptyDirectory();
  }

  /** A name such as standard output's, here of a file that is open. */
  @Test
  void whatStandsForSomethingOpenIsWrittenStraight() throws Exception {
    assumeTrue(Files.isDirectory(Path.of("/proc/self/fd")), "no /proc/self/fd");
    Path file = Files.writeString(folder.resolve("file"), "");
    try (var open = Files.newOutputStream(file)) {
      Path own = ownNumberOf(file);
      Path link = Files.createSymbolicLink(folder.resolve("link"), own);
      Object key = Files.readAttributes(file, BasicFileAttributes.class).fileKey();
      write(link, "written");
      assertThat(file).hasContent("written");
      assertThat(Files.readAttributes(file, BasicFileAttributes.class).fileKey()).isEqualTo(key);
      assertThat(WholeFile.isSame(link, file)).isTrue();
      open.flush();
    }
  }

  private static Path ownNumberOf(Path file) throws IOException {
    try (Stream<Path> numbers = Files.list(Path.of("/proc/self/fd"))) {
      return numbers
          .filter(
              number -> {
                try {
                  return Files.exists(number) && Files.isSameFile(number, file);
                } catch (IOException gone) {
                  return false;
                }
              })
          .findFirst()
          .orElseThrow();
    }
  }

  /** Writes and never ends. */
  static final class Endless {
    private Endless() {}

    public static void main(String[] args) throws IOException {
      WholeFile.write(
          Path.of(args[0]),
          out -> {
            out.write(new byte[1 << 20]);
            System.out.println("writing");
            while (true) {
              Thread.onSpinWait();
            }
          });
    }
  }

  @Test
  void twoNamesOfOneFileAreTheSame() throws IOException {
    Path file = Files.writeString(folder.resolve("file"), "");
    Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("file"));
    Path hard = Files.createLink(folder.resolve("hard"), file);
    for (Path other : List.of(file, link, hard, folder.resolve("./file"))) {
      assertThat(WholeFile.isSame(file, other)).as("%s", other).isTrue();
    }
    Path absent = folder.resolve("absent");
    Path toAbsent = Files.createSymbolicLink(folder.resolve("to-absent"), Path.of("absent"));
    assertThat(WholeFile.isSame(absent, toAbsent)).isTrue();
    assertThat(WholeFile.isSame(absent, folder.resolve("../" + folder.getFileName() + "/absent")))
        .isTrue();
    assertThat(WholeFile.isSame(file, absent)).isFalse();
    Path pipe = pipe();
    assertThat(WholeFile.isSame(pipe, pipe)).isFalse();
  }

  private static void assumeModes(Path file) throws IOException {
    assumeTrue(
        Files.getFileStore(file).supportsFileAttributeView("posix"),
        "no file modes on this system");
  }

  private Path pipe() throws IOException {
    Path pipe = folder.resolve("pipe");
    try {
      Process made = new ProcessBuilder("mkfifo", pipe.toString()).start();
      assertThat(made.waitFor(30, TimeUnit.SECONDS)).isTrue();
    } catch (IOException | InterruptedException none) {
      assumeTrue(false, "no mkfifo here");
    }
    assertThat(Files.exists(pipe, LinkOption.NOFOLLOW_LINKS)).isTrue();
    return pipe;
  }

  private static CompletableFuture<String> reading(Path pipe) {
    return CompletableFuture.supplyAsync(
        () -> {
          try {
            return Files.readString(pipe);
          } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
          }
        },
        task -> Thread.ofPlatform().daemon().start(task));
  }
}
