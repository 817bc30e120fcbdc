package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.device.OutOfDeviceMemoryException;
import java.io.File;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** How a command ends that has too little memory, or that is told to end. */
@Timeout(120)
class FailuresTest {
  @TempDir Path folder;

  @Test
  void theHeapIsNamedHoweverDeepItsErrorLies() {
    OutOfMemoryError full = new OutOfMemoryError("Java heap space");
    List<Throwable> failures =
        List.of(full, new CompletionException(full), new IllegalStateException(new Error(full)));
    for (Throwable failure : failures) {
      StringWriter err = new StringWriter();
      assertThat(Failures.report(failure, new PrintWriter(err))).isEqualTo(ExitCode.FAILURE);
      assertThat(err.toString()).contains("FAIRLEAD_JAVA_OPTS=-Xmx").doesNotContain("bug", "\tat ");
    }
  }

  @Test
  void tooLittleDeviceMemoryNamesTheOptionsThatHelp() {
    StringWriter err = new StringWriter();
    OutOfDeviceMemoryException full =
        new OutOfDeviceMemoryException("no room for 64 KiB", "allocate", 0, null);
    assertThat(Failures.report(full, new PrintWriter(err))).isEqualTo(ExitCode.FAILURE);
    assertThat(err.toString())
        .contains("no room", "--device-memory", "--jobs", "--host-memory", "--spill-dir")
        .doesNotContain("bug", "\tat ");
  }

  @ParameterizedTest
  @ValueSource(strings = {"16m", "20m"})
  void tooSmallAHeapEndsWithTheOptionThatRaisesIt(String heap) throws Exception {
    List<String> words = List.of("solve", "--poisson", "40", "--device", "host");
    Path err = folder.resolve("err");
    Process process = start(List.of("-Xmx" + heap, "-XX:+UseSerialGC"), words, err);
    try {
      assertThat(process.waitFor(100, TimeUnit.SECONDS)).isTrue();
    } finally {
      process.destroyForcibly();
    }
    assertThat(process.exitValue()).as(Files.readString(err)).isEqualTo(ExitCode.FAILURE);
    assertThat(Files.readString(err)).contains("FAIRLEAD_JAVA_OPTS=-Xmx").doesNotContain("\tat ");
  }

  private static Process start(List<String> options, List<String> words, Path err)
      throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(options);
    command.add("--enable-native-access=ALL-UNNAMED");
    command.addAll(List.of("-cp", System.getProperty("java.class.path")));
    command.add(Main.class.getName());
    command.addAll(words);
    File out = err.resolveSibling("out").toFile();
    return new ProcessBuilder(command).redirectOutput(out).redirectError(err.toFile()).start();
  }
}
