package io.fairlead.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.task.Role;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The list of what was not freed, and what finds buffers that were dropped. */
@Timeout(120)
class LiveTest {
  private final TestDevice world = TestDevice.open();
  private final Set<Storage> dropped = ConcurrentHashMap.newKeySet();
  private final Set<Role> toldBy = ConcurrentHashMap.newKeySet();
  private final Live live =
      new Live(
          storage -> {
            toldBy.add(Role.current());
            dropped.add(storage);
            throw new IllegalStateException("on purpose: the next one is to be told of too");
          });

  /** Keeps buffers from being dropped. */
  private final List<DeviceBuffer> kept = Collections.synchronizedList(new ArrayList<>());

  @AfterEach
  void close() {
    world.close();
  }

  private Storage add(boolean keep) {
    Storage storage = new Storage(0, 0, null, "test", Site.NOT_KEPT, null, 0);
    DeviceBuffer buffer = new DeviceBuffer(world.device, storage);
    live.add(buffer, storage);
    if (keep) {
      kept.add(buffer);
    }
    return storage;
  }

  @Test
  void whatWasAddedIsListedUntilItIsRemoved() {
    assertThat(live.all()).isEmpty();
    Storage a = add(true);
    Storage b = add(true);
    Storage c = add(true);
    assertThat(live.all()).containsExactlyInAnyOrder(a, b, c);
    live.remove(b);
    live.remove(b);
    assertThat(live.all()).containsExactlyInAnyOrder(a, c);
    live.remove(c);
    live.remove(a);
    assertThat(live.all()).isEmpty();
    live.remove(a);
    Storage d = add(true);
    assertThat(live.all()).containsExactly(d);
  }

  @Test
  void whatWasNeverListedIsRemovedByNobody() {
    live.remove(new Storage(0, 0, null, "test", Site.NOT_KEPT, null, 0));
    assertThat(live.all()).isEmpty();
  }

  @Test
  void threadsListAndRemoveAtOnceAlsoEachOthers() throws InterruptedException {
    ConcurrentLinkedQueue<Storage> left = new ConcurrentLinkedQueue<>();
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < 40; t++) { // more than one for each stripe
      SplittableRandom random = new SplittableRandom(t);
      threads.add(Thread.ofPlatform().start(() -> addAndRemove(random, left)));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    List<Storage> all = live.all();
    assertThat(all).doesNotHaveDuplicates();
    assertThat(new HashSet<>(all)).isEqualTo(new HashSet<>(left)).isNotEmpty();
  }

  @Test
  void whatIsGoneTakesNoRoomForLong() {
    for (int i = 0; i < 10_000; i++) {
      live.remove(add(false));
    }
    assertThat(live.size()).as("one after the other, in 16 lists").isLessThanOrEqualTo(16);
    List<Storage> many = new ArrayList<>();
    for (int i = 0; i < 10_000; i++) {
      many.add(add(true));
    }
    Collections.shuffle(many, new Random(1));
    many.subList(100, many.size()).forEach(live::remove);
    assertThat(live.all()).containsExactlyInAnyOrderElementsOf(many.subList(0, 100));
    assertThat(live.size()).isLessThan(16 * 128);
  }

  private void addAndRemove(SplittableRandom random, ConcurrentLinkedQueue<Storage> left) {
    for (int i = 0; i < 1_000; i++) {
      left.add(add(true));
      Storage some = random.nextInt(100) < 90 ? left.poll() : null;
      if (some != null) {
        live.remove(some);
      }
    }
  }

  @Test
  void eachThatIsDroppedIsToldOnceItIsCollected() {
    Storage keptOne = add(true);
    Set<Storage> expected = new HashSet<>();
    for (int i = 0; i < 50; i++) {
      expected.add(add(false));
    }
    long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
    while (dropped.size() < expected.size() && System.nanoTime() < end) {
      System.gc();
      LockSupport.parkNanos(1_000_000);
    }
    assertThat(dropped).isEqualTo(expected).doesNotContain(keptOne);
    assertThat(toldBy).containsExactly(Role.CLEANER);
    assertThat(live.all()).as("until they are freed").hasSize(51);
  }
}
