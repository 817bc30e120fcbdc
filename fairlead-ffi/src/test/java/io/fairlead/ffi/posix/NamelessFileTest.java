package io.fairlead.ffi.posix;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

/** Memory that is found by a number and a mark, and by nothing else. */
@EnabledOnOs(OS.LINUX)
class NamelessFileTest {
  private static final int BYTES = 512;
  private static final long MARK = 0x5eed_0001L;
  private static final long SELF = ProcessHandle.current().pid();

  @TempDir private Path folder;

  @Test
  void whoKnowsNumberAndMarkSharesTheMemory() throws IOException {
    NamelessFile made = NamelessFile.create(BYTES, MARK);
    MemorySegment found = NamelessFile.open(SELF, made.number(), BYTES, MARK);
    found.set(JAVA_INT, 128, 17);
    assertThat(made.memory().get(JAVA_INT, 128)).isEqualTo(17);
    made.close(); // which those who have it do not notice
    made.memory().set(JAVA_INT, 256, 18);
    assertThat(found.get(JAVA_INT, 256)).isEqualTo(18);
  }

  @Test
  void afterItIsClosedNobodyFindsIt() throws IOException {
    NamelessFile made = NamelessFile.create(BYTES, MARK);
    made.close();
    made.close();
    assertThatThrownBy(() -> NamelessFile.open(SELF, made.number(), BYTES, MARK))
        .isInstanceOf(IOException.class);
  }

  @Test
  void anotherMarkOrLengthIsRefused() throws IOException {
    try (NamelessFile made = NamelessFile.create(BYTES, MARK)) {
      assertThatThrownBy(() -> NamelessFile.open(SELF, made.number(), BYTES, MARK + 1))
          .isInstanceOf(IOException.class)
          .hasMessageContaining("is not the one that was meant");
      assertThatThrownBy(() -> NamelessFile.open(SELF, made.number(), 2 * BYTES, MARK))
          .isInstanceOf(IOException.class)
          .hasMessageContaining("512 bytes long, not 1024");
    }
  }

  /** What somebody planted under the number: it is neither taken nor changed. */
  @Test
  void aStrangersFileIsRefusedAndLeftAsItIs() throws IOException {
    Path full = Files.write(folder.resolve("full"), new byte[BYTES]);
    Path empty = Files.createFile(folder.resolve("empty"));
    Path link = Files.createSymbolicLink(folder.resolve("link"), full);
    for (Path stranger : List.of(full, empty, link)) {
      try (FileChannel open =
          FileChannel.open(stranger, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
        int number = numberOf(stranger.toRealPath());
        assertThatThrownBy(() -> NamelessFile.open(SELF, number, BYTES, MARK))
            .as(stranger.toString())
            .isInstanceOf(IOException.class);
        assertThat(open.isOpen()).isTrue();
      }
    }
    assertThat(Files.readAllBytes(full)).isEqualTo(new byte[BYTES]);
    assertThat(Files.size(empty)).isZero();
  }

  private static int numberOf(Path file) throws IOException {
    try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
      return open.filter(each -> leadsTo(each, file))
          .mapToInt(each -> Integer.parseInt(each.getFileName().toString()))
          .findFirst()
          .orElseThrow();
    }
  }

  private static boolean leadsTo(Path link, Path file) {
    try {
      return Files.readSymbolicLink(link).equals(file);
    } catch (IOException closedMeanwhile) {
      return false;
    }
  }

  @Test
  void nobodyMakesItShorterOrLonger() throws IOException {
    try (NamelessFile made = NamelessFile.create(BYTES, MARK);
        FileChannel other =
            FileChannel.open(
                Path.of("/proc/self/fd/" + made.number()),
                StandardOpenOption.READ,
                StandardOpenOption.WRITE)) {
      assertThatThrownBy(() -> other.truncate(8)).isInstanceOf(IOException.class);
      assertThat(other.size()).isEqualTo(BYTES);
      assertThat(made.memory().get(JAVA_LONG, 0)).isEqualTo(MARK);
    }
  }

  @Test
  void aProcessThatIsNotThereIsSaid() {
    assertThatThrownBy(() -> NamelessFile.open(Integer.MAX_VALUE, 3, BYTES, MARK))
        .isInstanceOf(IOException.class);
  }
}
