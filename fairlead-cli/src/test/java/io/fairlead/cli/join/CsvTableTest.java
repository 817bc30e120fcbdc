package io.fairlead.cli.join;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.solver.BadInputException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** CSV as people write it, and what is said of CSV that is none. */
@Timeout(60)
class CsvTableTest {
  @TempDir Path folder;

  private Path file(String text) throws IOException {
    return Files.write(folder.resolve("t.csv"), text.getBytes(StandardCharsets.UTF_8));
  }

  private CsvTable table(String text, String... sums) throws IOException {
    return table(text, null, sums);
  }

  private CsvTable table(String text, @Nullable TextKeys words, String... sums) throws IOException {
    CsvTable.Request request = new CsvTable.Request(file(text), "id", List.of(sums), words);
    return CsvTable.read(request, rows -> {});
  }

  private static List<Long> words(Table table) {
    long[] all = new long[(int) table.rows() * table.words()];
    table.read(0, (int) table.rows(), all);
    List<Long> list = new ArrayList<>();
    for (long word : all) {
      list.add(word);
    }
    return list;
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "id,n\n1,2\n3,4\n",
        "id,n\r\n1,2\r\n3,4\r\n",
        "id,n\r1,2\r3,4\r",
        "id,n\n1,2\n3,4",
        "\uFEFFid,n\n1,2\n3,4\n",
        "id,n\n\n1,2\n\n3,4\n\n\n",
        "\"id\",\"n\"\n\"1\",\"2\"\n3,\"4\"",
        "id , n\n 1 , 2\n3,\t4 \n",
        "n,id\n2,1\n4,3\n"
      })
  void lineEndsQuotesAndBlanksAreAsPeopleWriteThem(String text) throws IOException {
    assertThat(words(table(text))).containsExactly(1L, 2L, 3L, 4L);
  }

  @Test
  void quotedFieldsHaveCommasLinesAndQuotesInThem() throws IOException {
    TextKeys words = new TextKeys();
    CsvTable table =
        table("id,n\n\"a,b\",1\n\"c\r\nd\",2\n\"say \"\"x\"\"\",3\n\"\",4\n\"a,b\",5\n", words);
    assertThat(words(table)).containsExactly(0L, 1L, 1L, 2L, 2L, 3L, 3L, 4L, 0L, 5L);
    assertThat(List.of(words.word(0), words.word(1), words.word(2), words.word(3)))
        .containsExactly("a,b", "c\r\nd", "say \"x\"", "");
  }

  @Test
  void aColumnHasTheScaleOfItsLongestFraction() throws IOException {
    CsvTable table = table("id,price\n1,2\n2,-3.5\n3,.125\n4,+1.\n");
    assertThat(table.columns()).containsExactly(new Column("price", 3, false));
    assertThat(words(table)).containsExactly(1L, 2000L, 2L, -3500L, 3L, 125L, 4L, 1000L);
  }

  @Test
  void numbersThatCouldSumToMoreThanALongTakeTwoWords() throws IOException {
    CsvTable table = table("id,n\n1,9223372036854775807\n2,-9223372036854775808\n3,-1\n");
    assertThat(table.columns()).containsExactly(new Column("n", 0, true));
    assertThat(table.words()).isEqualTo(3);
    assertThat(words(table))
        .containsExactly(
            1L, 0x7FFF_FFFFL, 0xFFFF_FFFFL, 2L, -0x8000_0000L, 0L, 3L, -1L, 0xFFFF_FFFFL);
    assertThat(table("id,n\n1,9223372036854775807\n").words()).isEqualTo(2);
    assertThat(table("id,n\n1,4611686018427387904\n2,1\n").words()).isEqualTo(3);
    assertThat(table("id,n\n1,4611686018427387903\n2,1\n").words()).isEqualTo(2);
  }

  @Test
  void columnsThatBeginWithANumberAreSummed() throws IOException {
    CsvTable table = table("name,id,a,day,b\nx,1,2,2020-01-01,3\ny,2,3,2020-01-02,4\n");
    assertThat(table.columns()).extracting(Column::name).containsExactly("a", "b");
    assertThat(table("name,id,a,b\nx,1,2,3\n", "b").columns())
        .extracting(Column::name)
        .containsExactly("b");
    assertThat(table("id\n7\n").words()).isEqualTo(1);
  }

  @Test
  void manyRowsAreKept() throws IOException {
    StringBuilder text = new StringBuilder("id,n\n");
    for (int i = 0; i < 70_001; i++) {
      text.append(i).append(',').append(-i).append(i == 69_999 ? ".5" : "").append('\n');
    }
    CsvTable table = table(text.toString());
    assertThat(table.rows()).isEqualTo(70_001);
    long[] last = new long[4];
    table.read(69_999, 2, last);
    assertThat(last).containsExactly(69_999, -699_995, 70_000, -700_000);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "|0|empty",
        "id,n|0|no rows",
        "id,n\\n1|2|1 field, but the first line names 2",
        "id,n\\n1,2\\n1,2,3|3|3 fields",
        "id,n\\nx,2|2|'x' is no 64-bit integer",
        "id,n\\n1.5,2|2|--keys text",
        "id,n\\n99999999999999999999,2|2|no 64-bit integer",
        "id,n\\n1,2\\n\\n2,two|4|column n: 'two' is no number",
        "id,n\\n1,2\\n2,|3|column n: '' is no number",
        "id,n\\n1,2\\n2,1e5|3|'1e5' is no number",
        "id,n\\n1,2\\n2,1.2.3|3|'1.2.3' is no number",
        "id,n\\n1,2\\n2,-|3|'-' is no number",
        "id,n\\n1,2\\n2,99999999999999999999|3|more digits than 64 bits hold",
        "id,n\\n1,9223372036854775807\\n2,0.1|3|more digits than 64 bits hold",
        "id,n\\n1,2\\n2,0.1234567890123456789|3|more digits than 64 bits hold",
        "id,n\\n1,\"2\\n3,4|2|does not end",
        "id,n\\n1,2\"2|2|a quote inside of a field",
        "id,n\\n1,\"2\"2|2|text after a closing quote",
        "key,n\\n1,2|1|no column 'id'; its columns are: key, n",
        "id;n\\n1;2|1|semicolons",
        "id,id,n\\n1,2,3|1|two columns are named 'id'",
      })
  void eachRowThatIsWrongIsNamed(String text, int line, String says) {
    String lines = text == null ? "" : text.replace("\\n", "\n");
    assertThatThrownBy(() -> table(lines))
        .isInstanceOf(BadInputException.class)
        .hasMessageContaining(line == 0 ? "t.csv: " : "t.csv:" + line + ": ")
        .hasMessageContaining(says);
  }

  @Test
  void aColumnThatIsAskedForMustHaveNumbers() {
    assertThatThrownBy(() -> table("id,name,n\n1,x,2\n", "name"))
        .hasMessageContaining("t.csv:2: column name: 'x' is no number");
  }

  @Test
  void whatIsNoTextIsToldApart() throws IOException {
    Path packed = Files.write(folder.resolve("p.csv"), new byte[] {0x1F, (byte) 0x8B, 8, 0});
    assertThatThrownBy(() -> CsvTable.header(packed)).hasMessageContaining("gunzip");
    Path wide = Files.write(folder.resolve("w.csv"), "id\n1\n".getBytes(StandardCharsets.UTF_16));
    assertThatThrownBy(() -> CsvTable.header(wide)).hasMessageContaining("UTF-16");
    Path latin = Files.write(folder.resolve("l.csv"), new byte[] {'i', 'd', '\n', (byte) 0xE9});
    CsvTable.Request request = new CsvTable.Request(latin, "id", List.of(), new TextKeys());
    assertThatThrownBy(() -> CsvTable.read(request, rows -> {}))
        .hasMessageContaining("l.csv:2: field 1 is not UTF-8");
    assertThatThrownBy(() -> CsvTable.header(folder)).hasMessageContaining("it is a folder");
    assertThatThrownBy(() -> CsvTable.header(folder.resolve("none.csv")))
        .hasMessageContaining("none.csv: no such file");
  }
}
