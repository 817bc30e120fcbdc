package io.fairlead.task;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class RoleTest {
  @Test
  void comesFromTheThreadsTypeOrTheTask() throws Exception {
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT)) {
      assertThat(Role.current()).isEqualTo(Role.FOREIGN);
      assertThat(runtime.<Role>enter("t", 0, Role::current)).isEqualTo(Role.TASK);
      try (TaskScope<Role> scope = runtime.scope()) {
        scope.fork(Role::current);
        assertThat(scope.join()).containsExactly(Role.TASK);
      }
      for (Role role : new Role[] {Role.OWNER, Role.DEVICE_MANAGER, Role.COMM}) {
        assertThat(runtime.owner("o", role).call(Role::current).await()).isEqualTo(role);
      }
      AtomicReference<Role> polled = new AtomicReference<>();
      runtime.register(
          () -> {
            polled.set(Role.current());
            return 0;
          });
      Eventually.holds("polled", () -> polled.get() != null);
      assertThat(polled.get()).isEqualTo(Role.DEVICE_MANAGER);
    }
    AtomicReference<Role> plainVirtual = new AtomicReference<>();
    Thread.ofVirtual().start(() -> plainVirtual.set(Role.current())).join();
    assertThat(plainVirtual.get()).isEqualTo(Role.FOREIGN);
  }

  @Test
  void theCleanersThreadIsACleaner() {
    AtomicReference<Role> seen = new AtomicReference<>();
    Collected.register(new Object(), () -> seen.set(Role.current()));
    Eventually.holds(
        "the collector ran",
        () -> {
          System.gc();
          return seen.get() != null;
        });
    assertThat(seen.get()).isEqualTo(Role.CLEANER);
  }
}
