package io.fairlead.lab.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.lab.Repository;
import io.fairlead.task.CarrierMode;
import java.io.IOException;
import java.nio.file.Files;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The guide says of the carrier modes what the code says of them. */
class CarrierTableTest {
  private static final String HEAD = "| | own carriers | the JDK's carriers |";

  @Test
  void theGuideHasTheTableOfTheCode() throws IOException {
    List<String> rows =
        CarrierMode.differences().stream()
            .map(each -> "| " + each.what() + " | " + each.own() + " | " + each.jdk() + " |")
            .toList();
    assertThat(table()).as("the rows of docs/guide/carriers.md").isEqualTo(rows);
  }

  private static List<String> table() throws IOException {
    return Files.readAllLines(Repository.root().resolve("docs/guide/carriers.md")).stream()
        .dropWhile(line -> !line.equals(HEAD))
        .skip(2) // the head and the line below it
        .takeWhile(line -> line.startsWith("|"))
        .toList();
  }
}
