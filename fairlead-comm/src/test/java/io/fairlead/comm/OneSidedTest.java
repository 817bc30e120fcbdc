package io.fairlead.comm;

import static io.fairlead.comm.World.bytes;
import static io.fairlead.comm.World.longs;
import static io.fairlead.comm.World.memory;
import static io.fairlead.comm.World.value;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.comm.spi.TransportException.Reason;
import io.fairlead.task.Completion;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Puts and gets. */
@Timeout(60)
class OneSidedTest {
  private static final Duration SOON = Duration.ofSeconds(30);

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void putsAndGetsTouchWhatTheyNameAndNothingElse(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      MemorySegment memory = memory(100);
      Window window = world.rank(1).expose(memory).await(SOON);
      assertThat(window.bytes()).isEqualTo(100);
      world.rank(0).put(1, window.key(), 10, bytes(50, 3)).await(SOON);
      assertThat(memory.asSlice(10, 50).mismatch(bytes(50, 3))).isEqualTo(-1);
      assertThat(memory.asSlice(0, 10).mismatch(memory(10))).isEqualTo(-1);
      assertThat(memory.asSlice(60).mismatch(memory(40))).isEqualTo(-1);
      MemorySegment got = memory(20);
      world.rank(0).get(1, window.key(), 30, got).await(SOON);
      assertThat(got.mismatch(memory.asSlice(30, 20))).isEqualTo(-1);
      assertThat(world.rank(0).stats().bytesSent()).isEqualTo(50);
      assertThat(world.rank(0).stats().bytesReceived()).isEqualTo(20);
      window.close();
      window.close();
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  @Test
  void aKeyOfAClosedWindowIsToldAndNeverNamesOtherMemory() {
    try (World world = new World(2)) {
      Window old = world.rank(1).expose(memory(8)).await(SOON);
      old.close();
      MemorySegment memory = memory(8);
      Window window = world.rank(1).expose(memory).await(SOON);
      assertThat(window.key()).isNotEqualTo(old.key());
      Completion<?> late = world.rank(0).put(1, old.key(), 0, longs(5));
      assertThat(reason(late)).isEqualTo(Reason.MEMORY);
      assertThat(late.cause()).hasMessageContaining("put of 8 bytes to rank 1, key " + old.key());
      assertThat(value(memory)).isZero();
      Completion<?> elsewhere = world.rank(0).get(0, window.key(), 0, memory(8));
      assertThat(reason(elsewhere)).isEqualTo(Reason.MEMORY);
    }
  }

  @Test
  void whatDoesNotFitIsRefusedWhole() {
    try (World world = new World(2);
        Arena confined = Arena.ofConfined()) {
      MemorySegment memory = memory(16);
      long key = world.rank(1).expose(memory).await(SOON).key();
      Comm comm = world.rank(0);
      assertThat(reason(comm.put(1, key, 9, longs(-1)))).isEqualTo(Reason.MEMORY);
      assertThat(reason(comm.get(1, key, Long.MAX_VALUE, memory(8)))).isEqualTo(Reason.MEMORY);
      assertThat(memory.mismatch(memory(16))).isEqualTo(-1);
      assertThatThrownBy(() -> comm.put(1, key, -1, longs(1)))
          .isInstanceOf(IllegalArgumentException.class)
          .hasMessageContaining("an offset into a window is 0 or more");
      assertThatThrownBy(() -> comm.put(2, key, 0, longs(1)))
          .isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(() -> comm.get(1, key, 0, memory(8).asReadOnly()))
          .isInstanceOf(IllegalArgumentException.class);
      assertThatThrownBy(() -> comm.expose(confined.allocate(8)))
          .isInstanceOf(IllegalArgumentException.class);
    }
  }

  @Test
  void afterTheCloseItFails() {
    World world = new World(2);
    Window window = world.rank(1).expose(memory(8)).await(SOON);
    world.rank(0).close();
    assertThat(reason(world.rank(0).put(1, window.key(), 0, longs(1)))).isEqualTo(Reason.CLOSED);
    world.close();
    window.close();
  }

  @ParameterizedTest
  @EnumSource(ThreadLevel.class)
  void aManagerOpensTheGateOfAPut_row004_6(ThreadLevel level) {
    try (World world = GuardedTransport.world(2, level, CommConfig.DEFAULT)) {
      MemorySegment memory = memory(8 * 100);
      long key = world.rank(1).expose(memory).await(SOON).key();
      Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER);
      Comm comm = world.rank(0);
      List<Completion<?>> puts = new ArrayList<>();
      for (int i = 0; i < 100; i++) {
        LentBuffer lent = comm.lend(8);
        lent.setLong(0, i);
        puts.add(comm.put(1, key, 8L * i, manager.call(() -> "computed"), lent));
      }
      puts.forEach(put -> put.await(SOON));
      for (int i = 0; i < 100; i++) {
        assertThat(value(memory.asSlice(8L * i))).isEqualTo(i);
      }
      assertThat(comm.engine().lender.bytesLent()).isZero();
      assertThat(comm.engine().gates.out()).isZero();
      assertThat(GuardedTransport.violations(world)).isEmpty();
    }
  }

  @Test
  void aFailedGatePutsNothing() {
    try (World world = new World(2)) {
      MemorySegment memory = memory(8);
      long key = world.rank(1).expose(memory).await(SOON).key();
      Completion<String> gate = Completion.failed(new IllegalStateException("no result"));
      Completion<?> put = world.rank(0).put(1, key, 0, gate, Blob.of(longs(7)));
      assertThat(reason(put)).isEqualTo(Reason.GATE);
      assertThat(value(memory)).isZero();
    }
  }

  private static Reason reason(Completion<?> completion) {
    assertThatThrownBy(() -> completion.await(SOON)).isInstanceOf(CommException.class);
    return ((CommException) completion.cause()).reason();
  }
}
