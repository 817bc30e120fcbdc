import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarFile;
import java.util.stream.Stream;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TagFilter;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs the test suites of one module where there is no Maven: prints a line for each class, each
 * failure with its trace, each skip with its reason, and at the end "N passed, N failed, N skipped".
 * Exit code 0 only if some passed and none failed; a single test may have been skipped.
 *
 * <p>Run as {@code java -cp CLASSES SuiteRunner TESTS [--list TAG | --suites] [SUITE...]}: TESTS is
 * the jar or the folder of the test classes, which is on the class path too; SUITE a simple name of a
 * class, with * for any letters, or one test of it, CLASS#TEST; all if none. With {@code --list} and
 * {@code --suites} nothing is run: a line CLASS#TEST for each test that has that tag, or a line for
 * each suite.
 */
class SuiteRunner implements TestExecutionListener {
  /** What the builds passes over too, see the root pom: race tests have a runner of their own. */
  private static final String NO_SUITE = ".*RaceTest|.*\\.canary\\..*";

  /** As in the root pom. */
  private static final Map<String, String> LIMITS =
      Map.of(
          "junit.jupiter.execution.timeout.default", "120 s",
          "junit.jupiter.execution.timeout.threaddump.enabled", "true");

  private final PrintStream out = System.out;
  private final Map<String, Count> counts = new TreeMap<>();
  private int passed;
  private int failed;
  private int skipped;

  private static final class Count {
    private int passed;
    private int failed;
    private int skipped;
    private final long start = System.nanoTime();
  }

  public static void main(String[] args) throws IOException {
    List<String> wanted = List.of(args).subList(1, args.length);
    if (!wanted.isEmpty() && wanted.getFirst().equals("--list")) {
      List<String> suites = suites(Path.of(args[0]), wanted.subList(2, wanted.size()));
      list(request(suites).filters(TagFilter.includeTags(wanted.get(1))).build());
      return;
    }
    if (!wanted.isEmpty() && wanted.getFirst().equals("--suites")) {
      List<String> words = wanted.subList(1, wanted.size());
      suites(Path.of(args[0]), words).forEach(suite -> System.out.println(simple(suite)));
      return;
    }
    boolean isOne = wanted.size() == 1 && wanted.getFirst().contains("#");
    List<String> words = isOne ? List.of(wanted.getFirst().split("#", 2)) : wanted;
    List<String> suites = suites(Path.of(args[0]), isOne ? words.subList(0, 1) : words);
    SuiteRunner runner = new SuiteRunner();
    runner.execute(isOne ? request(suites.getFirst(), words.get(1)) : request(suites));
    System.exit(runner.end(suites, isOne) ? 0 : 1);
  }

  /** An OutOfMemoryError of a test ends the run, and JUnit's threads would keep the JVM alive. */
  private void execute(LauncherDiscoveryRequestBuilder request) {
    try {
      LauncherFactory.create().execute(request.build(), this);
    } catch (Throwable last) {
      failed++;
      out.println("  failed: all that follows, since a test ended the run");
      last.printStackTrace(out);
    }
  }

  private static LauncherDiscoveryRequestBuilder request(List<String> suites) {
    return LauncherDiscoveryRequestBuilder.request()
        .selectors(suites.stream().map(DiscoverySelectors::selectClass).toList())
        .configurationParameters(LIMITS);
  }

  private static LauncherDiscoveryRequestBuilder request(String suite, String test) {
    return LauncherDiscoveryRequestBuilder.request()
        .selectors(DiscoverySelectors.selectMethod(suite, test))
        .configurationParameters(LIMITS);
  }

  private static void list(LauncherDiscoveryRequest request) {
    TestPlan plan = LauncherFactory.create().discover(request);
    plan.accept(
        new TestPlan.Visitor() {
          @Override
          public void visit(TestIdentifier test) {
            if (test.isTest() && test.getSource().orElse(null) instanceof MethodSource method) {
              System.out.println(simple(suite(test)) + "#" + method.getMethodName());
            }
          }
        });
  }

  private static List<String> suites(Path tests, List<String> wanted) throws IOException {
    return entries(tests).stream()
        .filter(entry -> entry.endsWith("Test.class"))
        .map(entry -> entry.substring(0, entry.length() - ".class".length()).replace('/', '.'))
        .filter(name -> !name.matches(NO_SUITE))
        .filter(name -> wanted.isEmpty() || wanted.stream().anyMatch(w -> matches(simple(name), w)))
        .sorted()
        .toList();
  }

  private static List<String> entries(Path tests) throws IOException {
    if (Files.isDirectory(tests)) {
      try (Stream<Path> files = Files.walk(tests)) {
        return files
            .map(file -> tests.relativize(file).toString().replace(File.separatorChar, '/'))
            .toList();
      }
    }
    try (JarFile jar = new JarFile(tests.toFile())) {
      return jar.stream().map(entry -> entry.getName()).toList();
    }
  }

  private static boolean matches(String name, String wanted) {
    return name.matches(wanted.replace("*", ".*"));
  }

  private static String simple(String name) {
    return name.substring(name.lastIndexOf('.') + 1);
  }

  @Override
  public void executionStarted(TestIdentifier test) {
    if (test.getSource().isPresent()) {
      count(test);
    }
  }

  @Override
  public void executionSkipped(TestIdentifier test, String reason) {
    skip(test, reason);
  }

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    switch (result.getStatus()) {
      case ABORTED -> skip(test, result.getThrowable().map(Throwable::getMessage).orElse(""));
      case FAILED -> fail(test, result.getThrowable().orElse(null));
      case SUCCESSFUL -> {
        if (test.isTest()) {
          passed++;
          count(test).passed++;
        }
      }
    }
    if (isSuite(test)) {
      print(suite(test));
    }
  }

  private void skip(TestIdentifier test, String reason) {
    skipped++;
    count(test).skipped++;
    out.println("  skipped: " + name(test) + ": " + reason);
  }

  private void fail(TestIdentifier test, Throwable cause) {
    failed++;
    count(test).failed++;
    out.println("  failed: " + name(test));
    if (cause != null) {
      cause.printStackTrace(out);
    }
  }

  private void print(String suite) {
    Count count = counts.get(suite);
    out.printf(
        Locale.ROOT,
        "  %-40s %4d passed, %d failed, %d skipped, %.1f s%n",
        simple(suite),
        count.passed,
        count.failed,
        count.skipped,
        (System.nanoTime() - count.start) * 1e-9);
    out.flush();
  }

  private Count count(TestIdentifier test) {
    return counts.computeIfAbsent(suite(test), _ -> new Count());
  }

  private static boolean isSuite(TestIdentifier test) {
    return test.getSource()
        .filter(source -> source instanceof ClassSource of && of.getClassName().indexOf('$') < 0)
        .isPresent();
  }

  private static String suite(TestIdentifier test) {
    String name =
        switch (test.getSource().orElse(null)) {
          case MethodSource method -> method.getClassName();
          case ClassSource type -> type.getClassName();
          case null, default -> "(" + test.getDisplayName() + ")";
        };
    return name.indexOf('$') < 0 ? name : name.substring(0, name.indexOf('$'));
  }

  private static String name(TestIdentifier test) {
    return suite(test) + "." + test.getDisplayName();
  }

  private boolean end(List<String> suites, boolean maySkip) {
    List<String> lost = new ArrayList<>(suites);
    lost.removeAll(counts.keySet());
    lost.forEach(suite -> out.println("  not run: " + suite));
    out.printf("%d passed, %d failed, %d skipped%n", passed, failed, skipped);
    out.flush();
    return passed + (maySkip ? skipped : 0) > 0 && failed == 0 && lost.isEmpty();
  }
}
