package io.fairlead.host;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class HandleTableTest {
  private final HostDriver driver =
      (HostDriver) new HostDriverProvider().open(Map.of("memory", "1m", "workers", "1"));
  private final HandleTable handles = driver.handles();
  private final HostContext context = handles.context(driver.retain(0));

  @Test
  void threadsNeverGetTheSameHandle() throws InterruptedException {
    Set<Long> seen = ConcurrentHashMap.newKeySet();
    AtomicReference<String> wrong = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < 4; t++) {
      threads.add(
          Thread.ofPlatform()
              .start(
                  () -> {
                    for (int i = 0; i < 20_000; i++) {
                      HostEvent event = new HostEvent(context);
                      long handle = handles.add(event);
                      if (!seen.add(handle) || handles.event(handle) != event) {
                        wrong.set("handle " + handle);
                      }
                      if (!handles.remove(event) || handles.remove(event)) {
                        wrong.set("remove " + handle);
                      }
                    }
                  }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertThat(wrong.get()).isNull();
    assertThat(seen).hasSize(80_000);
    driver.close();
  }

  @Test
  void manyLiveHandlesGrowTheTable() {
    List<Long> all = new ArrayList<>();
    for (int i = 0; i < 10_000; i++) {
      all.add(handles.add(new HostEvent(context)));
    }
    assertThat(all).allSatisfy(handle -> assertThat(handles.event(handle)).isNotNull());
    driver.close();
    assertThatThrownBy(() -> handles.event(all.get(5))).hasMessageContaining("stale event handle");
  }
}
