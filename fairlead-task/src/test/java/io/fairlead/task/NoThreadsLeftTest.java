package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A process whose system has no thread left: it is told, and can still close. */
class NoThreadsLeftTest {
  private static final Path SHELL = Path.of("/bin/sh");

  /** Stacks of 1 GiB: the address space that the child may have is used up by a few threads. */
  private static final String COMMAND =
      "ulimit -v 12000000 && exec \"$0\" -Xss1g -Xmx64m -XX:+UseSerialGC"
          + " -XX:CompressedClassSpaceSize=64m -XX:ReservedCodeCacheSize=64m -cp \"$1\" \"$2\"";

  @Test
  @Timeout(120)
  void aRuntimeClosesAfterAnOwnerThatCouldNotBeStarted(@TempDir Path folder) throws Exception {
    assumeTrue(Files.isExecutable(SHELL), "no " + SHELL + " to limit a process with");
    Path output = folder.resolve("output");
    Process child = start(output);
    boolean ended = child.waitFor(60, TimeUnit.SECONDS);
    child.destroyForcibly();
    String text = Files.readString(output);
    assumeTrue(text.contains("opened"), "the limited process did not come up: " + text);
    assertThat(ended).as("it ends; it said: %s", text).isTrue();
    assertThat(text).contains("refused").contains("closed");
  }

  private static Process start(Path output) throws IOException {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    List<String> command =
        List.of(
            SHELL.toString(),
            "-c",
            COMMAND,
            java,
            System.getProperty("java.class.path"),
            Child.class.getName());
    return new ProcessBuilder(command)
        .redirectErrorStream(true)
        .redirectOutput(output.toFile())
        .start();
  }

  /** What runs in the limited process. */
  static final class Child {
    private static final int MORE_THAN_FIT = 64;

    private Child() {}

    public static void main(String[] arguments) {
      try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
        System.out.println("opened");
        try {
          for (int i = 0; i < MORE_THAN_FIT; i++) {
            runtime.owner("owner-" + i, Role.OWNER);
          }
        } catch (OutOfMemoryError noThread) {
          System.out.println("refused");
        }
      }
      System.out.println("closed");
    }
  }
}
