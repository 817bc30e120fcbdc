package io.fairlead.lab.architecture;

import static com.tngtech.archunit.base.DescribedPredicate.describe;
import static com.tngtech.archunit.lang.conditions.ArchConditions.accessField;
import static com.tngtech.archunit.lang.conditions.ArchConditions.callMethodWhere;
import static com.tngtech.archunit.lang.conditions.ArchConditions.dependOnClassesThat;
import static com.tngtech.archunit.lang.conditions.ArchConditions.never;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.Dependency;
import com.tngtech.archunit.core.domain.JavaAccess;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaConstructor;
import com.tngtech.archunit.core.domain.JavaConstructorCall;
import com.tngtech.archunit.core.domain.JavaMethod;
import com.tngtech.archunit.core.domain.JavaModifier;
import com.tngtech.archunit.lang.ArchCondition;
import com.tngtech.archunit.lang.ArchRule;
import com.tngtech.archunit.lang.ConditionEvents;
import com.tngtech.archunit.lang.SimpleConditionEvent;
import com.tngtech.archunit.lang.syntax.ArchRuleDefinition;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * The rules that a program can check. Each message says what to do instead, and each has a canary
 * in {@code io.fairlead.lab.canary} that it must flag.
 */
final class Rules {
  /**
   * Classes that may break a rule, by binary name, and why. Add one with its reason, or not at all.
   */
  record Exceptions(Map<String, String> reasons) {
    static final Exceptions NONE = new Exceptions(Map.of());

    boolean allow(JavaClass type) {
      return reasons.containsKey(topLevel(type).getName());
    }
  }

  private static final Set<String> TEST_ANNOTATIONS =
      Set.of(
          "org.junit.jupiter.api.Test",
          "org.junit.jupiter.api.RepeatedTest",
          "org.junit.jupiter.api.TestFactory",
          "org.junit.jupiter.api.TestTemplate",
          "org.junit.jupiter.params.ParameterizedTest");

  private Rules() {}

  static ArchRule modulesSeeOnlyWhatTheTableAllows(
      ModuleTable table, Function<JavaClass, String> moduleOf) {
    return rule(
        "see only the modules that ARCHITECTURE.md allows",
        "dependencies point one way along the path; move the code to the step it belongs to",
        (type, report) -> {
          Set<String> allowed = table.maySee(moduleOf.apply(type));
          for (Dependency dependency : type.getDirectDependenciesFromSelf()) {
            String target = moduleOf.apply(dependency.getTargetClass().getBaseComponentType());
            if (!target.isEmpty() && !allowed.contains(target)) {
              report.accept(dependency.getDescription());
            }
          }
        });
  }

  static ArchRule noThreadLocal(Exceptions exceptions) {
    return ban(
        exceptions,
        dependOnClassesThat(assignableTo(ThreadLocal.class)),
        "a task may go on on another thread, so its state is found through the task: use TaskLocal"
            + " or a TaskAttachment");
  }

  static ArchRule noLookupByThread(Exceptions exceptions) {
    return ban(
        exceptions,
        callMethodWhere(calls(Thread.class, "threadId", "getId", "getName")),
        "what is learnt from a thread must not outlive a point where the task can suspend: use"
            + " Task.current(), or add the class to the exceptions with the reason");
  }

  static ArchRule nativeAccessOnlyInFfi(Exceptions exceptions) {
    return ban(
        exceptions,
        dependOnClassesThat(named("java.lang.foreign.Linker", "java.lang.foreign.SymbolLookup")),
        "only fairlead-ffi has native access: put the call there, behind the driver or transport"
            + " SPI");
  }

  static ArchRule noNativeCallUnderMonitor(Exceptions exceptions) {
    ArchCondition<JavaClass> condition =
        new ArchCondition<>("make no native call with a monitor held") {
          private Monitors monitors;

          @Override
          public void init(Collection<JavaClass> all) {
            monitors = new Monitors(all);
          }

          @Override
          public void check(JavaClass type, ConditionEvents events) {
            if (!exceptions.allow(type)) {
              monitors
                  .violations(type)
                  .forEach(what -> events.add(SimpleConditionEvent.violated(type, what)));
            }
          }
        };
    return ArchRuleDefinition.classes()
        .should(condition)
        .because(
            "a driver may block, and whoever waits for the monitor meanwhile is no task that parks:"
                + " make the call outside, or through the engine's gate")
        .allowEmptyShould(true);
  }

  static ArchRule noCriticalCalls(Exceptions exceptions) {
    return ban(
        exceptions,
        callMethodWhere(calls("java.lang.foreign.Linker$Option", "critical")),
        "any driver call can block inside the driver, and a critical one then stops the collector");
  }

  static ArchRule noSleep(Exceptions exceptions) {
    return ban(
        exceptions,
        callMethodWhere(
            calls(Thread.class, "sleep").or(calls("java.util.concurrent.TimeUnit", "sleep"))),
        "sleeping is not synchronisation: wait for the event itself (a Completion, a latch), with a"
            + " deadline");
  }

  static ArchRule noConsole(Exceptions exceptions) {
    return ban(
        exceptions,
        accessField(System.class, "out")
            .or(accessField(System.class, "err"))
            .or(callMethodWhere(calls(Throwable.class, "printStackTrace"))),
        "only the command talks to the console: throw, return, or use System.Logger");
  }

  static ArchRule noThrowsThrowable() {
    return rule(
        "declare no public method that throws Throwable",
        "convert at the call site to an exception that says what failed",
        (type, report) ->
            type.getMethods().stream()
                .filter(method -> method.getModifiers().contains(JavaModifier.PUBLIC))
                .filter(Rules::throwsThrowable)
                .forEach(method -> report.accept(method.getDescription())));
  }

  static ArchRule noBareExceptions() {
    Set<String> bare =
        Set.of(
            "java.lang.RuntimeException",
            "java.lang.Exception",
            "java.lang.Error",
            "java.lang.Throwable");
    return rule(
        "create no bare RuntimeException, Exception, Error or Throwable",
        "throw the exception that belongs to the noun (see io.fairlead.fault), with what was being"
            + " done and what to do",
        (type, report) ->
            type.getConstructorCallsFromSelf().stream()
                .filter(call -> bare.contains(call.getTargetOwner().getName()))
                .filter(call -> !isCallOfSuper(call))
                .forEach(call -> report.accept(call.getDescription())));
  }

  static ArchRule packagesAreNullMarked() {
    return rule(
        "lie in a package with a @NullMarked package-info",
        "write one: the step, what it receives from whom, what it hands to whom",
        (type, report) -> {
          boolean marked =
              type.getPackage()
                  .tryGetPackageInfo()
                  .filter(info -> info.isAnnotatedWith("org.jspecify.annotations.NullMarked"))
                  .isPresent();
          if (!marked) {
            report.accept(type.getName() + " lies in " + type.getPackageName());
          }
        });
  }

  /** A class whose name does not end as it should is not run, or not as what it is. */
  static ArchRule testsAreNamedByTheirKind() {
    return rule(
        "be named by their kind: XTest, XContractTest, XRaceTest, XSimTest, XGpuTest, XBench",
        "rename it: only classes with such a name are run",
        (type, report) -> {
          if (!type.getModifiers().contains(JavaModifier.ABSTRACT) && !type.isInterface()) {
            suffixes(type)
                .filter(suffix -> !topLevel(type).getSimpleName().endsWith(suffix))
                .forEach(suffix -> report.accept(type.getName() + " should end in " + suffix));
          }
        });
  }

  private static Stream<String> suffixes(JavaClass type) {
    Stream.Builder<String> suffixes = Stream.builder();
    if (type.getAllMethods().stream().anyMatch(Rules::isTest)) {
      suffixes.add("Test");
    }
    if (type.getAllRawSuperclasses().stream().anyMatch(Rules::isContract)) {
      suffixes.add("ContractTest");
    }
    if (type.isAnnotatedWith("org.openjdk.jcstress.annotations.JCStressTest")) {
      suffixes.add("RaceTest");
    }
    if (type.getAllMethods().stream()
        .anyMatch(method -> method.isAnnotatedWith("org.openjdk.jmh.annotations.Benchmark"))) {
      suffixes.add("Bench");
    }
    return suffixes.build();
  }

  private static boolean isTest(JavaMethod method) {
    return TEST_ANNOTATIONS.stream().anyMatch(method::isAnnotatedWith);
  }

  private static boolean isContract(JavaClass type) {
    return type.getSimpleName().endsWith("Contract");
  }

  private static boolean throwsThrowable(JavaMethod method) {
    return method.getThrowsClause().getTypes().stream()
        .anyMatch(thrown -> thrown.isEquivalentTo(Throwable.class));
  }

  private static boolean isCallOfSuper(JavaConstructorCall call) {
    return call.getOrigin() instanceof JavaConstructor
        && call.getOriginOwner()
            .getRawSuperclass()
            .filter(parent -> parent.equals(call.getTargetOwner()))
            .isPresent();
  }

  static JavaClass topLevel(JavaClass type) {
    JavaClass outer = type;
    while (outer.getEnclosingClass().isPresent()) {
      outer = outer.getEnclosingClass().get();
    }
    return outer;
  }

  private static DescribedPredicate<JavaClass> assignableTo(Class<?> type) {
    return describe("are " + type.getSimpleName(), found -> found.isAssignableTo(type));
  }

  private static DescribedPredicate<JavaClass> named(String... names) {
    return describe("are one of " + Arrays.asList(names), found -> isOneOf(found, names));
  }

  private static boolean isOneOf(JavaClass found, String... names) {
    return Arrays.stream(names)
        .anyMatch(name -> found.getName().equals(name) || found.getName().startsWith(name + "$"));
  }

  private static DescribedPredicate<JavaAccess<?>> calls(Class<?> owner, String... methods) {
    return describe(
        owner.getSimpleName() + "." + String.join("/", methods),
        access ->
            access.getTargetOwner().isAssignableTo(owner)
                && Arrays.asList(methods).contains(access.getName()));
  }

  private static DescribedPredicate<JavaAccess<?>> calls(String owner, String... methods) {
    return describe(
        owner + "." + String.join("/", methods),
        access ->
            access.getTargetOwner().isAssignableTo(owner)
                && Arrays.asList(methods).contains(access.getName()));
  }

  private static ArchRule ban(
      Exceptions exceptions, ArchCondition<JavaClass> condition, String instead) {
    return ArchRuleDefinition.classes()
        .that(describe("are no stated exception", type -> !exceptions.allow(type)))
        .should(never(condition))
        .because(instead)
        .allowEmptyShould(true);
  }

  private interface Check {
    void on(JavaClass type, Consumer<String> report);
  }

  private static ArchRule rule(String should, String instead, Check check) {
    ArchCondition<JavaClass> condition =
        new ArchCondition<>(should) {
          @Override
          public void check(JavaClass type, ConditionEvents events) {
            check.on(type, what -> events.add(SimpleConditionEvent.violated(type, what)));
          }
        };
    return ArchRuleDefinition.classes().should(condition).because(instead).allowEmptyShould(true);
  }
}
