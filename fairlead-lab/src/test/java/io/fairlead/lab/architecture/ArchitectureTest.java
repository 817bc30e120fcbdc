package io.fairlead.lab.architecture;

import static org.assertj.core.api.Assertions.assertThat;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import io.fairlead.lab.architecture.Rules.Exceptions;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The rules of {@link Rules}, applied to what was compiled. */
class ArchitectureTest {
  private static JavaClasses published;
  private static JavaClasses tests;

  /** Who may ask a thread for its name or number, and why. */
  private static final Exceptions THREAD_IDENTITY =
      new Exceptions(
          Map.of(
              "io.fairlead.host.CurrentContexts",
              "it is the driver whose contexts are current per thread, as a GPU's are"));

  /** Who may sleep, and why. */
  private static final Exceptions SLEEP =
      new Exceptions(
          Map.of(
              "io.fairlead.device.WaitTest",
              "lets the poller fall asleep now and then; nothing is concluded from it"));

  @BeforeAll
  static void readClasses() {
    published = Classes.published();
    tests = Classes.tests();
  }

  @Test
  void everyModuleIsRead() {
    Set<String> read = Set.copyOf(published.stream().map(Classes::moduleOf).distinct().toList());
    assertThat(read).containsExactlyInAnyOrderElementsOf(ModuleTable.read().modules());
    assertThat(tests).isNotEmpty();
  }

  @Test
  void modulesSeeOnlyWhatTheTableAllows() {
    Rules.modulesSeeOnlyWhatTheTableAllows(ModuleTable.read(), Classes::moduleOf).check(published);
  }

  @Test
  void noThreadLocal() {
    Rules.noThreadLocal(Exceptions.NONE).check(published);
  }

  @Test
  void noLookupByThread() {
    Rules.noLookupByThread(THREAD_IDENTITY).check(published);
  }

  @Test
  void nativeAccessOnlyInFfi() {
    Rules.nativeAccessOnlyInFfi(Exceptions.NONE).check(outside("ffi"));
  }

  @Test
  void noNativeCallUnderMonitor() {
    Rules.noNativeCallUnderMonitor(Exceptions.NONE).check(published);
  }

  @Test
  void noCriticalCalls() {
    Rules.noCriticalCalls(Exceptions.NONE).check(published);
  }

  @Test
  void noSleepInProductOrTests() {
    Rules.noSleep(SLEEP).check(published);
    Rules.noSleep(SLEEP).check(tests);
  }

  @Test
  void noConsoleOutsideTheCommand() {
    Rules.noConsole(Exceptions.NONE).check(outside("cli"));
  }

  @Test
  void noThrowsThrowable() {
    Rules.noThrowsThrowable().check(published);
  }

  @Test
  void noBareExceptions() {
    Rules.noBareExceptions().check(published);
  }

  @Test
  void packagesAreNullMarked() {
    Rules.packagesAreNullMarked().check(Classes.main());
  }

  @Test
  void testsAreNamedByTheirKind() {
    Rules.testsAreNamedByTheirKind().check(tests);
  }

  private static JavaClasses outside(String module) {
    return published.that(
        DescribedPredicate.<JavaClass>describe(
            "are outside " + module, type -> !Classes.moduleOf(type).equals(module)));
  }
}
