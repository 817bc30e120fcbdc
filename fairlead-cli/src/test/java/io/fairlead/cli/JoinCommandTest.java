package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code fairlead join} as a user runs it, in this process. */
@Timeout(120)
class JoinCommandTest {
  private static final String ORDERS =
      "customer,price,note\r\n7,1.50,\"a, b\"\r\n3,2,x\r\n7,-0.25,\r\n9,4,z\r\n";
  private static final String VISITS = "day,customer,minutes\n1,7,10\n2,7,20\n2,3,5\n3,4,1\n";

  @TempDir Path folder;

  private Path file(String name, String text) throws IOException {
    return Files.write(folder.resolve(name), text.getBytes(StandardCharsets.UTF_8));
  }

  private Run join(Object... more) throws IOException {
    return joinOf(ORDERS, VISITS, more);
  }

  private Run joinOf(String left, String right, Object... more) throws IOException {
    Path orders = file("orders.csv", left);
    Path visits = file("visits.csv", right);
    List<Object> all =
        new ArrayList<>(List.of("join", orders, visits, "--on", "customer", "--device", "host"));
    all.addAll(List.of(more));
    return Run.fairlead(all.toArray());
  }

  @Test
  void generatedTablesAreJoinedAndChecked() {
    Run run = Run.fairlead("join", "--rows", 30_000, "--device", "host", "--check");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out())
        .startsWith("joined 30,000 and 30,000 rows on key: ")
        .contains("rows/s", "waits", "check       in core: the same")
        .endsWith("check       plain Java: the same\n");
    assertThat(run.err()).contains("partitions");
  }

  @ParameterizedTest
  @CsvSource({"1,0,1,1", "2,0.5,3,2", "3,1,16,8", "4,2,100,1"})
  void anySeedSkewTasksAndStreamsAgreeWithPlainJava(int seed, double skew, int tasks, int streams) {
    Run run =
        Run.fairlead(
            "join",
            "--rows",
            5_001,
            "--seed",
            seed,
            "--skew",
            skew,
            "--tasks",
            tasks,
            "--streams",
            streams,
            "--device",
            "host",
            "--check");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out()).contains("plain Java: the same");
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 255})
  void smallAndOddSizesDo(int rows) {
    Run run = Run.fairlead("join", "--rows", rows, "--device", "host", "--check");
    assertThat(run.code()).as(run.err()).isZero();
  }

  @Test
  void aSeedGivesTheSameHoweverItIsCut() {
    String one = digest("--tasks", "1", "--partitions", "1");
    assertThat(digest("--tasks", "9", "--partitions", "64")).isEqualTo(one);
    assertThat(digest("--seed", "2")).isNotEqualTo(one);
  }

  private static String digest(Object... words) {
    List<Object> all =
        new ArrayList<>(List.of("join", "--rows", 9_999, "--json", "-", "--device", "host"));
    all.addAll(List.of(words));
    Run run = Run.fairlead(all.toArray());
    assertThat(run.code()).as(run.err()).isZero();
    String after = run.out().substring(run.out().indexOf("\"digest\": \"") + 11);
    return after.substring(0, 16);
  }

  @Test
  void filesAreJoinedAndGroupsWritten() throws IOException {
    Path out = folder.resolve("groups.csv");
    Run run = join("--out", out, "--check");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(Files.readString(out))
        .isEqualTo(
            """
            customer,count,sum(left.price),sum(right.day),sum(right.minutes)
            3,1,2.00,2,5
            7,4,2.50,6,60
            """);
    assertThat(run.out())
        .startsWith("joined 4 and 4 rows on customer: 2 groups of 5 joined rows")
        .contains("sum(left.price) = 4.50, sum(right.day) = 8, sum(right.minutes) = 65");
  }

  @Test
  void onlyWhatIsAskedForIsSummed() throws IOException {
    Run run = join("--sum", "minutes,price", "--out", "-");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out())
        .startsWith("customer,count,sum(left.price),sum(right.minutes)\n3,1,2.00,5\n");
    assertThat(run.err()).as("the summary makes room").contains("joined 4 and 4 rows");
  }

  @Test
  void keysMayBeText() throws IOException {
    String left = "customer,n\nzoë,1\n\"Smith, A\",2\nzoë,3\n\"say \"\"hi\"\"\",4\n";
    String right = "customer,m\n\"Smith, A\",10\nzoë,20\nnobody,30\n\"say \"\"hi\"\"\",5\n";
    Run run = joinOf(left, right, "--out", "-", "--check");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out())
        .isEqualTo(
            """
            customer,count,sum(left.n),sum(right.m)
            "Smith, A",1,2,10
            "say ""hi""\",1,4,5
            zoë,2,4,40
            """);
  }

  @Test
  void numbersAreComparedAsTextWhereThatIsAskedFor() throws IOException {
    String left = "customer,n\n7,1\n007,2\n";
    String right = "customer,m\n7,10\n07,20\n";
    assertThat(joinOf(left, right, "--out", "-").out())
        .isEqualTo("customer,count,sum(left.n),sum(right.m)\n7,4,6,60\n");
    assertThat(joinOf(left, right, "--out", "-", "--keys", "text").out())
        .isEqualTo("customer,count,sum(left.n),sum(right.m)\n7,1,1,10\n");
  }

  /** Sums of more than 64 bits, of numbers at both ends. */
  @Test
  void sumsAreExactHoweverLarge() throws IOException {
    String left =
        "customer,n\n1,9223372036854775807\n1,9223372036854775807\n1,-9223372036854775808\n";
    String right = "customer,m\n1,92233720368547758.07\n1,0.01\n";
    Run run = joinOf(left, right, "--out", "-", "--check");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out()).endsWith("1,6,18446744073709551612,276701161105643274.24\n");
    assertThat(run.err()).contains("plain Java: the same");
  }

  @Test
  void jsonHasTheSame() throws IOException {
    Run run = join("--json", "-");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out())
        .startsWith("{")
        .endsWith("}\n")
        .contains(
            "\"groups\": 2",
            "\"joinedRows\": 5",
            "\"sum(left.price)\": \"4.50\"",
            "\"leftRows\": 4",
            "\"workingSetBytes\"",
            "\"deviceMemoryBytes\"",
            "\"peakBytes\"",
            "\"rowsPerSecond\"",
            "\"waits\"",
            "\"partition\"");
    Path report = folder.resolve("report.json");
    assertThat(join("--json", report).code()).isZero();
    assertThat(Files.readString(report)).contains("\"groups\": 2");
  }

  @Test
  void tablesWithoutACommonKeyHaveNoGroups() throws IOException {
    Run run = joinOf("customer,n\n1,2\n", "customer,m\n2,3\n", "--out", "-", "--check");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out()).isEqualTo("customer,count,sum(left.n),sum(right.m)\n");
  }

  @Test
  void aFileMayBeJoinedWithItself() throws IOException {
    Path file = file("orders.csv", ORDERS);
    Run run = Run.fairlead("join", file, file, "--on", "customer", "--device", "host", "--check");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(run.out()).contains("3 groups of 6 joined rows");
  }

  // --- what is wrong ------------------------------------------------------------------------

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "a.csv|Give two files",
        "a.csv b.csv|--on COLUMN",
        "a.csv b.csv c.csv --on id|c.csv",
        "a.csv b.csv --on id --on key|--on",
        "a.csv b.csv --on id --rows 5|--rows generates tables",
        "a.csv b.csv --on id --skew 1|--skew is about generated",
        "a.csv b.csv --on id --seed 1|--seed is about generated",
        "a.csv b.csv --on id --sum id|is not summed",
        "a.csv b.csv --on id --keys fast|auto, integer or text",
        "--on id|names a column of two files",
        "--sum id|names a column of two files",
        "--keys text|--keys is about files",
        "--rows 0|--rows takes 1 to",
        "--rows -1|--rows takes 1 to",
        "--rows many|expected a whole number",
        "--rows 1 --rows 2|--rows",
        "--skew -0.5|--skew takes 0",
        "--skew 11|--skew takes 0",
        "--skew NaN|--skew takes 0",
        "--tasks 0|--tasks takes 1 to",
        "--streams 0|--streams takes 1 to 1024",
        "--partitions 3|power of two",
        "--partitions 2048|power of two",
        "--device gpu|auto, host or cuda",
        "--device-memory lots|lots",
        "--host-memory 0|leave it out",
        "--out - --json -|standard output",
        "--frobnicate|--frobnicate",
      })
  void wrongUseGivesExitCodeTwoAndSaysWhat(String words, String says) {
    Run run = Run.fairlead((Object[]) ("join " + words).split(" "));
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.USAGE);
    assertThat(run.err()).contains(says).doesNotContain("\tat ");
    assertThat(run.err()).contains("See fairlead join --help");
    assertThat(run.out()).isEmpty();
  }

  @Test
  void badInputGivesExitCodeThreeAndTheLine() throws IOException {
    Run missing = Run.fairlead("join", folder.resolve("no.csv"), folder, "--on", "id");
    requireBadInput(missing, "no.csv: no such file");
    requireBadInput(joinOf("id,n\n1,2\n", VISITS), "orders.csv:1: there is no column 'customer'");
    requireBadInput(
        joinOf(ORDERS, "customer,n\n7,x\n", "--sum", "n"), "visits.csv:2: column n: 'x'");
    requireBadInput(joinOf(ORDERS, "customer,n\nx,1\n"), "visits.csv:2: the key 'x'");
    requireBadInput(joinOf(ORDERS, "customer,n\n"), "visits.csv: it has no rows");
    requireBadInput(joinOf(ORDERS, VISITS, "--sum", "cost"), "neither file has the column 'cost'");
    assertThat(folder.resolve("groups.csv")).doesNotExist();
  }

  @Test
  void whatCannotBeWrittenIsFoundBeforeTheWork() throws IOException {
    Path none = folder.resolve("none");
    requireBadInput(join("--out", none.resolve("x.csv")), "cannot be written");
    requireBadInput(join("--json", none.resolve("x.json")), "cannot be written");
    requireBadInput(join("--spill-dir", none), "no such folder; make it first");
    Path file = file("plain", "");
    requireBadInput(join("--spill-dir", file), "it is no folder");
    Path orders = folder.resolve("orders.csv");
    Run same = join("--out", orders);
    assertThat(same.code()).isEqualTo(ExitCode.USAGE);
    assertThat(same.err()).contains("would overwrite the input");
    assertThat(Files.readString(orders)).isEqualTo(ORDERS);
  }

  private static void requireBadInput(Run run, String says) {
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.BAD_INPUT);
    assertThat(run.err()).contains(says).doesNotContain("\tat ", "Exception", "bug");
    assertThat(run.out()).isEmpty();
  }

  @Test
  void tooLittleDeviceMemoryForOnePartitionSaysHowMuchIsNeeded() {
    Run run =
        Run.fairlead(
            "join",
            "--rows",
            20_000,
            "--partitions",
            1,
            "--device",
            "host",
            "--device-memory",
            "1M");
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err())
        .contains("joining partition 0 needs", "--device-memory ", "--partitions")
        .doesNotContain("\tat ", "bug");
    String needed = run.err().replaceAll("(?s).*--device-memory (\\d+K).*", "$1");
    Run enough =
        Run.fairlead(
            "join",
            "--rows",
            20_000,
            "--partitions",
            1,
            "--device",
            "host",
            "--device-memory",
            needed);
    assertThat(enough.err()).doesNotContain("needs");
  }

  @Test
  void tooLittleHostMemoryToSpillToSaysWhatWouldHelp() {
    Object[] words = {
      "join", "--rows", 150_000, "--device", "host", "--partitions", 16, "--host-memory", "128k"
    };
    requireMemoryAdvice(Run.fairlead(words), "more --host-memory", "--spill-dir");
    requireMemoryAdvice(
        Run.fairlead(with(words, "--spill-dir", folder)),
        "at least --host-memory ",
        "--partitions");
    Run inCore = Run.fairlead(with(words, "--device-memory", "200m"));
    assertThat(inCore.code()).as("it matters only where it spills: %s", inCore.err()).isZero();
  }

  private static void requireMemoryAdvice(Run run, String... says) {
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err()).contains(says).doesNotContain("\tat ", "bug");
  }

  private static Object[] with(Object[] words, Object... more) {
    List<Object> all = new ArrayList<>(List.of(words));
    all.addAll(List.of(more));
    return all.toArray();
  }

  @Test
  void moreDeviceMemoryThanThereIsIsRefusedInPlainWords() {
    Run run = Run.fairlead("join", "--rows", 10, "--device", "host", "--device-memory", "900t");
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err()).contains("--device-memory: the memory limit").doesNotContain("bug");
  }

  @Test
  void whatWasSpilledIsToldAndNothingOfItShows() throws IOException {
    Run run =
        Run.fairlead(
            "join", "--rows", 150_000, "--device", "host", "--skew", 0.5, "--check", "--json", "-");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(number(run.out(), "spills")).isPositive();
    assertThat(number(run.out(), "returns")).isPositive();
    assertThat(number(run.out(), "spilledBytes")).isPositive();
    assertThat(number(run.out(), "returnedBytes")).isPositive();
    assertThat(number(run.out(), "toDiskBytes")).isZero();
    assertThat(number(run.out(), "onHostBytesMax")).isPositive();
    assertThat(number(run.out(), "peakBytes"))
        .isLessThanOrEqualTo(number(run.out(), "workingSetBytes") / 4);
    assertThat(run.out()).contains("\"in core\": \"the same\"", "\"plain Java\": \"the same\"");
  }

  @Test
  void whatTheHostHasNoRoomForGoesToFilesThatAreGoneAfterwards() throws IOException {
    Path spill = Files.createDirectory(folder.resolve("spill"));
    Files.setPosixFilePermissions(spill, PosixFilePermissions.fromString("rwx------"));
    Run run =
        Run.fairlead(
            "join",
            "--rows",
            150_000,
            "--device",
            "host",
            "--host-memory",
            "1m",
            "--spill-dir",
            spill,
            "--check",
            "--json",
            "-");
    assertThat(run.code()).as(run.err()).isZero();
    assertThat(number(run.out(), "onDiskBytesMax")).isPositive();
    assertThat(number(run.out(), "toDiskBytes")).isPositive();
    assertThat(number(run.out(), "fromDiskBytes")).isPositive();
    assertThat(number(run.out(), "onHostBytesMax")).isBetween(1L, 1L << 20);
    assertThat(run.out()).contains("\"in core\": \"the same\"", "\"plain Java\": \"the same\"");
    assertThat(spill).isEmptyDirectory();
  }

  @Test
  void aFolderThatOthersCanWriteToIsRefused() throws IOException {
    Path spill = Files.createDirectory(folder.resolve("open"));
    Files.setPosixFilePermissions(spill, PosixFilePermissions.fromString("rwxrwxrwx"));
    requireBadInput(
        Run.fairlead("join", "--rows", 10, "--device", "host", "--spill-dir", spill), "others can");
  }

  private static long number(String json, String key) {
    String after = json.substring(json.indexOf("\"" + key + "\": ") + key.length() + 4);
    return Long.parseLong(after.split("[,\\n}]", 2)[0]);
  }

  @Test
  void theHelpIsWhole() {
    assertThat(Run.fairlead("join", "--help").out())
        .contains("--on", "--spill-dir", "Exit codes", "69", "FAIRLEAD_JAVA_OPTS");
    assertThat(List.of(Run.fairlead("--help").out().split("\n")))
        .anyMatch(line -> line.strip().startsWith("join "));
  }

  @Test
  void cudaWhereThereIsNoneFailsAndSaysWhy() {
    Run run = Run.fairlead("join", "--rows", 10, "--device", "cuda");
    assertThat(run.code()).as(run.err()).isEqualTo(ExitCode.FAILURE);
    assertThat(run.err()).containsIgnoringCase("cuda").doesNotContain("\tat ");
  }
}
