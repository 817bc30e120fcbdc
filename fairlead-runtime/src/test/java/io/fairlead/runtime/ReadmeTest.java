package io.fairlead.runtime;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.runtime.ReadmeExample.Batch;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The README's example compiles, runs, and is what the README shows. */
class ReadmeTest {
  private static final Path ROOT = Path.of(System.getProperty("fairlead.root", ".."));
  private static final Pattern JAVA_BLOCK = Pattern.compile("```java\\n(.*?)```", Pattern.DOTALL);
  private static final int LINES_MAX = 18;

  @Test
  void theExampleRuns() {
    List<Batch> batches =
        List.of(
            new Batch(new double[] {1, 2, 3}, new double[] {0.5, 0, 0}),
            new Batch(new double[] {10}, new double[] {-20}));

    assertThat(ReadmeExample.sums(batches)).containsExactly(12.5, 0.0);
  }

  @Test
  void theReadmeShowsIt() throws IOException {
    Matcher block = JAVA_BLOCK.matcher(Files.readString(ROOT.resolve("README.md")));
    assertThat(block.find()).as("README.md has a java block").isTrue();

    assertThat(block.group(1))
        .as("the java block of README.md; copy it from ReadmeExample.java, between the markers")
        .isEqualTo(snippet());
  }

  @Test
  void itIsShort() throws IOException {
    assertThat(snippet().lines().count()).isLessThanOrEqualTo(LINES_MAX);
    assertThat(snippet().lines()).allMatch(line -> line.length() <= 100);
  }

  private static String snippet() throws IOException {
    Path source =
        ROOT.resolve("fairlead-runtime/src/test/java/io/fairlead/runtime/ReadmeExample.java");
    String text = Files.readString(source);
    String inner =
        text.substring(
            text.indexOf('\n', text.indexOf("// readme:begin")) + 1,
            text.lastIndexOf('\n', text.indexOf("// readme:end")));
    return inner.stripIndent() + "\n";
  }
}
