package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatExceptionOfType;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;
import static org.assertj.core.api.Assertions.assertThatIllegalStateException;

import io.fairlead.fault.EngineException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Gate.Way;
import java.io.IOException;
import java.util.EnumSet;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(60)
class GateTest {
  private TaskRuntime runtime;
  private Owner owner;

  /** A context that is current per OS thread, as far as a test needs one. */
  private static final class Context implements Binding {
    final AtomicLong current = new AtomicLong(77);
    final AtomicInteger binds = new AtomicInteger();

    @Override
    public long bind() {
      binds.incrementAndGet();
      return current.getAndSet(1);
    }

    @Override
    public void restore(long previous) {
      current.set(previous);
    }
  }

  private final Context context = new Context();

  @BeforeEach
  void open() {
    runtime = TaskRuntime.open(TaskConfig.DEFAULT.ownerQueue(4));
    owner = runtime.owner("engine", Role.OWNER);
  }

  @AfterEach
  void close() {
    runtime.close();
    assertThat(Thread.interrupted()).as("no interrupt is left behind").isFalse();
  }

  private Gate gate(ThreadRule rule) {
    return Gate.of("lib", rule, owner, Set.of(), context);
  }

  /** The owner binds as the lent task: that must not count as the lender's own binding. */
  @Test
  void aLenderMayWaitWhileTheOwnerHasAContextCurrentForIt() {
    CountDownLatch bound = new CountDownLatch(1);
    CountDownLatch waited = new CountDownLatch(1);
    try (TaskScope<Boolean> scope = runtime.scope()) {
      scope.fork(
          () -> {
            Task task = Task.current();
            LentCall<Boolean> call =
                new LentCall<>(
                    null,
                    task,
                    Thread.currentThread(),
                    () ->
                        Gate.bound(
                            context,
                            () -> {
                              bound.countDown();
                              return waited.await(30, TimeUnit.SECONDS);
                            }));
            assertThat(owner.trySubmit(call)).isTrue();
            assertThat(bound.await(30, TimeUnit.SECONDS)).isTrue();
            try {
              task.checkMayWait();
            } finally {
              waited.countDown();
            }
            return call.await();
          });
      assertThat(scope.join()).containsExactly(true);
    }
  }

  // --- the table, cell by cell

  @ParameterizedTest
  @CsvSource({
    "ANY_THREAD,      TASK,           DIRECT",
    "ANY_THREAD,      FOREIGN,        DIRECT",
    "ANY_THREAD,      OWNER,          DIRECT",
    "ANY_THREAD,      DEVICE_MANAGER, DIRECT",
    "ANY_THREAD,      COMM,           DIRECT",
    "ANY_THREAD,      CLEANER,        SHIFT",
    "ONE_AT_A_TIME,   TASK,           LOCKED",
    "ONE_AT_A_TIME,   FOREIGN,        LOCKED",
    "ONE_AT_A_TIME,   OWNER,          LOCKED",
    "ONE_AT_A_TIME,   DEVICE_MANAGER, SHIFT",
    "ONE_AT_A_TIME,   COMM,           SHIFT",
    "ONE_AT_A_TIME,   CLEANER,        SHIFT",
    "CONTEXT_CURRENT, TASK,           BIND",
    "CONTEXT_CURRENT, FOREIGN,        BIND",
    "CONTEXT_CURRENT, OWNER,          BIND",
    "CONTEXT_CURRENT, DEVICE_MANAGER, BIND",
    "CONTEXT_CURRENT, COMM,           BIND",
    "CONTEXT_CURRENT, CLEANER,        SHIFT",
    "OWNER_ONLY,      TASK,           SHIFT",
    "OWNER_ONLY,      FOREIGN,        SHIFT",
    "OWNER_ONLY,      OWNER,          SHIFT",
    "OWNER_ONLY,      DEVICE_MANAGER, SHIFT",
    "OWNER_ONLY,      COMM,           SHIFT",
    "OWNER_ONLY,      CLEANER,        SHIFT",
  })
  void theTable(ThreadRule rule, Role role, Way expected) {
    assertThat(gate(rule).decide(role)).isEqualTo(expected);
    assertThat(Gate.TABLE.get(rule).get(role)).isEqualTo(expected);
    if (rule != ThreadRule.OWNER_ONLY) {
      Way ownerless = expected == Way.SHIFT ? Way.REFUSE : expected;
      assertThat(Gate.of("lib", rule, null, Set.of(), context).decide(role)).isEqualTo(ownerless);
    }
  }

  @ParameterizedTest
  @EnumSource(ThreadRule.class)
  void rolesThatMustShiftDoSoUnderEveryRule(ThreadRule rule) {
    Gate gate = Gate.of("lib", rule, owner, EnumSet.allOf(Role.class), context);
    for (Role role : Role.values()) {
      assertThat(gate.decide(role)).isEqualTo(Way.SHIFT);
    }
    try (Mutant.Handle _ = Mutant.enable("gate.ignores-shifts")) {
      assertThat(rule == ThreadRule.OWNER_ONLY || gate.decide(Role.TASK) != Way.SHIFT)
          .as("the loop above finds a gate that ignores the set")
          .isTrue();
    }
  }

  @ParameterizedTest
  @CsvSource({
    "ANY_THREAD, DIRECT",
    "ONE_AT_A_TIME, LOCKED",
    "CONTEXT_CURRENT, BIND",
    "OWNER_ONLY, DIRECT",
  })
  void atHomeNothingShifts(ThreadRule rule, Way expected) {
    Gate gate = Gate.of("lib", rule, owner, EnumSet.allOf(Role.class), context);
    assertThat(owner.call(() -> gate.decide(Role.current())).await()).isEqualTo(expected);
  }

  // --- calls

  @ParameterizedTest
  @EnumSource(ThreadRule.class)
  void everyRuleMakesTheCallFromEveryRoleThatMayWait(ThreadRule rule) {
    Gate gate = gate(rule);
    assertThat(gate.call("op", () -> 1)).isEqualTo(1);
    assertThat(runtime.<Integer>enter("t", 0, () -> gate.call("op", () -> 2))).isEqualTo(2);
    Owner other = runtime.owner("other", Role.OWNER);
    assertThat(other.call(() -> gate.call("op", () -> 3)).await()).isEqualTo(3);
    assertThat(gate.submit("op", () -> 4).await()).isEqualTo(4);
  }

  @Test
  void aShiftedBodyRunsOnTheOwnerAsTheCallersTask() {
    Gate gate = gate(ThreadRule.OWNER_ONLY);
    runtime.<Void>enter(
        "caller",
        0,
        () -> {
          Task task = Task.current();
          String thread =
              gate.call(
                  "op",
                  () -> {
                    assertThat(Task.current()).isSameAs(task);
                    assertThat(Role.current()).isEqualTo(Role.OWNER);
                    return Thread.currentThread().getName();
                  });
          assertThat(thread).isEqualTo("fairlead-engine");
          return null;
        });
  }

  @Test
  void aBoundCallHasTheContextAndRestoresWhatWas() {
    Gate gate = gate(ThreadRule.CONTEXT_CURRENT);
    assertThat(gate.call("op", context.current::get)).isEqualTo(1);
    assertThat(context.current).hasValue(77);
    assertThatExceptionOfType(EngineException.class)
        .isThrownBy(
            () ->
                gate.call(
                    "op",
                    () -> {
                      throw new IOException("x");
                    }))
        .withCauseInstanceOf(IOException.class);
    assertThat(context.current).as("also after a failure").hasValue(77);
    assertThat(context.binds).hasValue(2);
  }

  @Test
  void aBoundCallOnAVirtualThreadMustNotWait() {
    Gate gate = gate(ThreadRule.CONTEXT_CURRENT);
    try (TaskScope<Integer> scope = runtime.scope()) {
      scope.fork(() -> gate.call("op", () -> Completion.<Integer>source().completion().await()));
      assertThatIllegalStateException()
          .isThrownBy(scope::join)
          .withMessageContaining("could resume on another OS thread");
    }
  }

  @Test
  void oneAtATimeIsOneAtATime() {
    Gate gate = gate(ThreadRule.ONE_AT_A_TIME);
    AtomicInteger inside = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    try (TaskScope<Integer> scope = runtime.scope()) {
      for (int i = 0; i < 200; i++) {
        scope.fork(
            () ->
                gate.call(
                    "op",
                    () -> {
                      most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                      Eventually.suspend(); // inside the lock
                      return inside.decrementAndGet();
                    }));
      }
      scope.join();
    }
    assertThat(most).hasValue(1);
  }

  // --- those that must not wait

  @Test
  void aDeviceManagerSubmitsAndNeverEnters() {
    Gate gate = Gate.of("comm", ThreadRule.ANY_THREAD, owner, Set.of(Role.DEVICE_MANAGER), null);
    Owner manager = runtime.owner("manager", Role.DEVICE_MANAGER);
    String submitted =
        manager
            .call(() -> gate.submit("send", () -> Thread.currentThread().getName()))
            .await()
            .await();
    assertThat(submitted).isEqualTo("fairlead-engine");
    Completion<Integer> called = manager.call(() -> gate.call("send", () -> 1));
    Eventually.holds("done", called::isDone);
    assertThat(called.cause())
        .isInstanceOf(IllegalStateException.class)
        .hasMessageContaining("use submit(...)");
  }

  @Test
  void aSubmitThatCannotWaitIsRefusedWithAValue() {
    Gate gate = Gate.of("comm", ThreadRule.OWNER_ONLY, owner, Set.of(), null);
    Owner manager = runtime.owner("manager", Role.DEVICE_MANAGER);
    java.util.concurrent.CountDownLatch hold = new java.util.concurrent.CountDownLatch(1);
    AtomicBoolean holding = new AtomicBoolean();
    owner.trySubmit(
        () -> {
          holding.set(true);
          TaskScopeTest.awaitQuietly(hold);
        });
    Eventually.holds("held", holding::get);
    for (int i = 0; i < 4; i++) {
      assertThat(owner.trySubmit(() -> {})).isTrue();
    }
    Completion<Integer> refused = manager.call(() -> gate.submit("send", () -> 1)).await();
    assertThat(refused.cause())
        .isInstanceOf(EngineException.class)
        .hasMessageContaining("queue is full");
    hold.countDown();
  }

  /** Also where nobody else is asked who it is. */
  @ParameterizedTest
  @EnumSource(
      value = ThreadRule.class,
      names = {"ANY_THREAD", "CONTEXT_CURRENT"})
  void theCleanerIsTheOneWhoIsAsked(ThreadRule rule) throws Exception {
    AtomicBoolean entered = new AtomicBoolean();
    AtomicReference<Throwable> seen = new AtomicReference<>();
    Thread cleaner =
        Role.CLEANER.newThread(
            "test-cleaner",
            () -> {
              try {
                gate(rule).call("probe", () -> entered.getAndSet(true));
              } catch (IllegalStateException e) {
                seen.set(e);
              }
            });
    cleaner.start();
    cleaner.join();
    assertThat(seen.get()).hasMessageContaining("use submit(...)");
    assertThat(entered).isFalse();
    assertThat(context.binds).hasValue(0);
  }

  @Test
  void theCleanerIsRefusedWithoutAnOwner() throws Exception {
    Gate gate = Gate.of("lib", ThreadRule.ANY_THREAD, null, Set.of(), null);
    AtomicReference<Object> seen = new AtomicReference<>();
    RoleThread cleaner =
        new RoleThread(
            "test-cleaner",
            Role.CLEANER,
            null,
            () -> {
              try {
                gate.call("free", () -> 1);
              } catch (EngineException e) {
                seen.set(e);
              }
            });
    cleaner.start();
    cleaner.join();
    assertThat(seen.get()).asString().contains("refused to a CLEANER");
  }

  @Test
  void theGateNeedsWhatItsRuleNeeds() {
    assertThatIllegalArgumentException()
        .isThrownBy(() -> Gate.of("l", ThreadRule.OWNER_ONLY, null, Set.of(), null));
    assertThatIllegalArgumentException()
        .isThrownBy(() -> Gate.of("l", ThreadRule.CONTEXT_CURRENT, owner, Set.of(), null));
  }
}
