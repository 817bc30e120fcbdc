package io.fairlead.lab.architecture;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.lang.ArchRule;
import io.fairlead.lab.architecture.Rules.Exceptions;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * A rule that no longer finds anything looks like a clean repository. So each is shown a class that
 * breaks it, and must flag every one of the places, and nothing in a class that keeps it.
 */
class ArchitectureCanaryTest {
  private static final ModuleTable TWO_STEPS =
      ModuleTable.parse(
          """
          | `fairlead-first` | a | b | c | JDK |
          | `fairlead-second` | a | b | c | `first` |
          """);

  static Stream<Arguments> canaries() {
    return Stream.of(
        arguments(
            Rules.modulesSeeOnlyWhatTheTableAllows(TWO_STEPS, ArchitectureCanaryTest::step),
            "layers",
            1),
        arguments(Rules.noThreadLocal(Exceptions.NONE), "threadlocal", 4),
        arguments(Rules.noLookupByThread(Exceptions.NONE), "threadidentity", 3),
        arguments(Rules.nativeAccessOnlyInFfi(Exceptions.NONE), "nativeaccess", 2),
        arguments(Rules.noNativeCallUnderMonitor(Exceptions.NONE), "monitor", 5),
        arguments(Rules.noCriticalCalls(Exceptions.NONE), "critical", 1),
        arguments(Rules.noSleep(Exceptions.NONE), "sleep", 2),
        arguments(Rules.noConsole(Exceptions.NONE), "console", 3),
        arguments(Rules.noThrowsThrowable(), "throwable", 1),
        arguments(Rules.noBareExceptions(), "bare", 2),
        arguments(Rules.packagesAreNullMarked(), "unmarked", 1),
        arguments(Rules.testsAreNamedByTheirKind(), "naming", 4));
  }

  @ParameterizedTest
  @MethodSource("canaries")
  void everyBadPlaceIsFlagged(ArchRule rule, String canary, int places) {
    JavaClasses classes = Classes.canary(canary);
    assertThat(violations(rule, classes)).as(rule.getDescription()).hasSize(places);
    for (JavaClass type : classes) {
      boolean flagged = !violations(rule, only(type, classes)).isEmpty();
      assertThat(flagged).as("%s is flagged", type.getName()).isEqualTo(isBad(type));
    }
  }

  @Test
  void aStatedExceptionIsLeftAlone() {
    Exceptions exceptions =
        new Exceptions(Map.of("io.fairlead.lab.canary.sleep.BadSleeper", "a canary"));
    assertThat(violations(Rules.noSleep(exceptions), Classes.canary("sleep"))).isEmpty();
  }

  private static List<String> violations(ArchRule rule, JavaClasses classes) {
    return rule.evaluate(classes).getFailureReport().getDetails();
  }

  private static JavaClasses only(JavaClass type, JavaClasses classes) {
    return classes.that(DescribedPredicate.describe("are one", type::equals));
  }

  /** Canaries are called BadX; a class beside one that keeps the rule is called anything else. */
  private static boolean isBad(JavaClass type) {
    return Rules.topLevel(type).getSimpleName().startsWith("Bad");
  }

  private static String step(JavaClass type) {
    String prefix = "io.fairlead.lab.canary.layers.";
    String name = type.getPackageName();
    return name.startsWith(prefix) ? name.substring(prefix.length()) : "";
  }
}
