package io.fairlead.lab.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.lab.Repository;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class SnippetsTest {
  private static final String SOURCE =
      """
      class Example {
        // snippet:sum
        int sum() {
          return 1 + 1;
        }
        // end:sum
      }
      """;

  static List<Path> pages() throws IOException {
    List<Path> pages = new ArrayList<>();
    for (String folder : List.of("", "docs")) {
      try (Stream<Path> files =
          Files.walk(Repository.root().resolve(folder), folder.isEmpty() ? 1 : 4)) {
        files.filter(file -> file.toString().endsWith(".md")).forEach(pages::add);
      }
    }
    return pages;
  }

  @ParameterizedTest
  @MethodSource("pages")
  void javaInThePagesCompiles(Path page) throws IOException {
    assertThat(Snippets.problems(Files.readString(page), Repository::read)).isEmpty();
  }

  @Test
  void theReadmeShowsAShortExample() {
    assertThat(Snippets.blocks(Repository.read("README.md")))
        .as("README.md shows about fifteen lines of Java")
        .isNotEmpty()
        .allSatisfy(block -> assertThat(block.lines()).hasSizeLessThanOrEqualTo(18))
        .allSatisfy(block -> assertThat(block.lines()).allMatch(line -> line.length() <= 100));
  }

  @Test
  void aTrueCopyIsAccepted() {
    assertThat(problems("<!-- snippet: E.java#sum -->", "int sum() {\n  return 1 + 1;\n}\n"))
        .isEmpty();
  }

  @Test
  void aDifferentTextIsReported() {
    assertThat(problems("<!-- snippet: E.java#sum -->", "int sum() {\n  return 2;\n}\n"))
        .singleElement()
        .asString()
        .contains("return 1 + 1;");
  }

  @Test
  void anUnknownPartIsReported() {
    assertThat(problems("<!-- snippet: E.java#product -->", "int sum();\n"))
        .singleElement()
        .asString()
        .contains("no lines between // snippet:product");
  }

  @Test
  void aBlockWithoutSourceIsReported() {
    assertThat(problems("", "int sum();\n")).singleElement().asString().contains("names no source");
  }

  private static List<String> problems(String mark, String block) {
    String page = "Text.\n" + mark + "\n```java\n" + block + "```\n";
    assertThat(Snippets.blocks(page)).hasSize(1);
    return Snippets.problems(page, file -> SOURCE);
  }
}
