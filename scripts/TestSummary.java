import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.Node;

/**
 * Sums the Surefire reports of all modules: lists what failed, what was skipped and why, and what
 * was not run; ends with a line "N passed, N failed, N skipped". Exit code 0 only if all ran and none
 * failed.
 *
 * <p>Run by ./verify as {@code java scripts/TestSummary.java ROOT}.
 */
class TestSummary {
  /** Test classes by name that Surefire passes over, see the root pom. */
  private static final String NO_SUITE = ".*RaceTest\\.java|.*\\.canary\\..*";

  private int passed;
  private final List<String> failed = new ArrayList<>();
  private final List<String> skipped = new ArrayList<>();
  private final List<String> notRun = new ArrayList<>();

  public static void main(String[] args) throws Exception {
    TestSummary summary = new TestSummary();
    for (Path module : modules(Path.of(args[0]))) {
      summary.addModule(module);
    }
    System.exit(summary.print() ? 0 : 1);
  }

  private static List<Path> modules(Path root) throws IOException {
    try (Stream<Path> folders = Files.list(root)) {
      return folders.filter(folder -> Files.exists(folder.resolve("pom.xml"))).sorted().toList();
    }
  }

  /** A module with tests and no report stands on one that failed, or its JVM died at once. */
  private void addModule(Path module) throws Exception {
    List<Path> reports = reports(module.resolve("target/surefire-reports"));
    Path sources = module.resolve("src/test/java");
    if (reports.isEmpty() && Files.isDirectory(sources)) {
      notRun.add("the tests of " + module.getFileName());
    }
    for (Path report : reports) {
      add(report);
    }
    if (!reports.isEmpty() && Files.isDirectory(sources)) {
      addClassesWithoutReport(sources, reports);
    }
  }

  /** A class whose JVM died, or that was passed over, is in no report. */
  private void addClassesWithoutReport(Path sources, List<Path> reports) throws IOException {
    List<String> names = reports.stream().map(file -> file.getFileName().toString()).toList();
    try (Stream<Path> files = Files.walk(sources)) {
      files
          .map(file -> sources.relativize(file).toString().replace(File.separatorChar, '.'))
          .filter(file -> file.endsWith("Test.java") && !file.matches(NO_SUITE))
          .map(file -> file.substring(0, file.length() - ".java".length()))
          .filter(suite -> !names.contains("TEST-" + suite + ".xml"))
          .sorted()
          .forEach(suite -> notRun.add(suite + ": it left no report"));
    }
  }

  private static List<Path> reports(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) {
      return List.of();
    }
    try (Stream<Path> files = Files.list(folder)) {
      return files
          .filter(file -> file.getFileName().toString().matches("TEST-.*\\.xml"))
          .sorted()
          .toList();
    }
  }

  private void add(Path report) throws Exception {
    var document = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(report.toFile());
    var cases = document.getElementsByTagName("testcase");
    if (cases.getLength() == 0) {
      skipped.add(suite(report) + ": " + lastWords(document));
    }
    for (int i = 0; i < cases.getLength(); i++) {
      add((Element) cases.item(i));
    }
  }

  private static String suite(Path report) {
    String name = report.getFileName().toString();
    return name.substring("TEST-".length(), name.length() - ".xml".length());
  }

  /** A suite that stopped before its first test has nowhere to put a reason but its output. */
  private static String lastWords(Document document) {
    String said = "";
    for (String stream : List.of("system-out", "system-err")) {
      var outputs = document.getElementsByTagName(stream);
      for (int i = 0; i < outputs.getLength(); i++) {
        said = outputs.item(i).getTextContent().strip().lines().reduce(said, (a, b) -> b);
      }
    }
    return "none of its tests was run; " + (said.isBlank() ? "no reason given" : said);
  }

  private void add(Element test) {
    String name = test.getAttribute("classname") + "." + test.getAttribute("name");
    for (Node child = test.getFirstChild(); child != null; child = child.getNextSibling()) {
      switch (child.getNodeName()) {
        case "failure", "error" -> {
          failed.add(name + ": " + reason((Element) child));
          return;
        }
        case "skipped" -> {
          skipped.add(name + ": " + reason((Element) child));
          return;
        }
        default -> {}
      }
    }
    passed++;
  }

  private static String reason(Element outcome) {
    String message = outcome.getAttribute("message");
    String text = message.isBlank() ? outcome.getTextContent() : message;
    return text.isBlank() ? "no reason given" : text.strip().lines().findFirst().orElseThrow();
  }

  private boolean print() {
    list("failed", failed);
    list("skipped", skipped);
    list("not run", notRun);
    if (passed + failed.size() == 0) {
      System.out.println("No test ran: look at the first error above.");
    }
    System.out.printf(
        "%d passed, %d failed, %d skipped%n", passed, failed.size(), skipped.size());
    return passed > 0 && failed.isEmpty() && notRun.isEmpty();
  }

  private static void list(String what, List<String> tests) {
    for (String test : tests) {
      System.out.println("  " + what + ": " + test);
    }
  }
}
