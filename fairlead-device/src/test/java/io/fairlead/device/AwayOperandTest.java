package io.fairlead.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.task.Owner;
import io.fairlead.task.Role;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;

/** Operands that are not on the device when an operation wants them. */
class AwayOperandTest {
  private static final Access[] BOTH = {Access.READ, Access.WRITE};

  private final List<String> story = new CopyOnWriteArrayList<>();

  /** Not there until it is brought back, or again after so many times. */
  private final class Moving implements Operand {
    private final String name;
    private final long order;
    private int away;
    private boolean failing;

    Moving(String name, long order, int away) {
      this.name = name;
      this.order = order;
      this.away = away;
    }

    @Override
    public long bytes() {
      return 64;
    }

    @Override
    public long order() {
      return order;
    }

    @Override
    public long acquire(DeviceStream stream, Access access) {
      story.add((away > 0 ? "miss " : "acquire ") + name);
      return away > 0 ? AWAY : order;
    }

    @Override
    public long hold(DeviceContext context, Object graph) {
      story.add((away > 0 ? "miss " : "hold ") + name);
      return away > 0 ? AWAY : order;
    }

    @Override
    public Stay bringBack(DeviceStream stream, Operand[] operands) {
      story.add("bring back " + name + " of " + operands.length);
      if (failing) {
        throw new IllegalStateException("no room");
      }
      away--;
      return () -> story.add("leave " + name);
    }

    @Override
    public void recorded(DeviceStream stream, long sequence, Access access) {
      story.add("recorded " + name);
    }

    @Override
    public void abandoned(DeviceStream stream, Access access) {
      story.add("abandoned " + name);
    }

    @Override
    public void letGo(Object graph) {
      story.add("let go " + name);
    }
  }

  private static void use(DeviceStream stream, Operand... operands) {
    stream.enqueue(DriverCall.LAUNCH, "use", operands, BOTH, (handle, addresses) -> {});
  }

  @Test
  void isBroughtBackOutsideOfTheTurnAndTriedAgain() {
    try (World world = new World(FakeDriver.strict())) {
      use(world.context.stream(), new Moving("x", 1, 0), new Moving("y", 2, 1));
      assertThat(story)
          .containsExactly(
              "acquire x",
              "miss y",
              "abandoned x",
              "acquire x",
              "miss y",
              "abandoned x",
              "bring back y of 2",
              "acquire x",
              "acquire y",
              "recorded x",
              "recorded y",
              "leave y");
    }
  }

  @Test
  void eachThatIsAwayIsAskedUntilAllAreThere() {
    try (World world = new World(FakeDriver.strict())) {
      use(world.context.stream(), new Moving("x", 1, 1), new Moving("y", 2, 1));
      assertThat(story)
          .containsSubsequence(
              "bring back x of 2", "bring back y of 2", "recorded x", "recorded y", "leave x")
          .endsWith("leave x", "leave y");
    }
  }

  @Test
  void whoCannotBeBroughtBackEndsTheOperation() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      Moving x = new Moving("x", 1, 1);
      Moving y = new Moving("y", 2, 1);
      y.failing = true;
      assertThatThrownBy(() -> use(stream, x, y)).hasMessage("no room");
      assertThat(story).endsWith("bring back y of 2", "leave x");
      y.failing = false;
      use(stream, x, y); // the turn was given up
      assertThat(story).endsWith("recorded x", "recorded y", "leave y");
    }
  }

  @Test
  void nothingIsBroughtBackInsideAnotherOperation() {
    try (World world = new World(FakeDriver.strict())) {
      DeviceStream stream = world.context.stream();
      Operand nests =
          new FakeBuffer(3, 64)
              .onAcquire(mine -> use(mine, new Moving("x", 1, 1), new Moving("y", 2, 0)));
      assertThatThrownBy(() -> use(stream, nests, new Moving("z", 4, 0)))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("cannot be brought back inside another operation")
          .hasMessageContaining("hold it before");
      use(stream, new Moving("x", 1, 0), new Moving("y", 2, 0));
    }
  }

  @Test
  void whoMustNotWaitIsTold() {
    try (World world = new World(FakeDriver.strict());
        Owner manager = world.tasks.owner("manager", Role.DEVICE_MANAGER)) {
      DeviceStream stream = world.context.openStream(0);
      var use =
          manager.call(
              () -> {
                use(stream, new Moving("x", 1, 1), new Moving("y", 2, 0));
                return 0;
              });
      assertThatThrownBy(use::await)
          .rootCause()
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("DEVICE_MANAGER thread must not wait for it");
      stream.close();
    }
  }

  @Test
  void aGraphBringsBackWhatItHolds() {
    try (World world = new World(FakeDriver.strict())) {
      Moving x = new Moving("x", 1, 2);
      try (GraphBuilder builder = world.context.buildGraph("g")) {
        builder.fill(x, 0, 64, (byte) 1);
        assertThat(story)
            .containsExactly(
                "miss x",
                "bring back x of 1",
                "miss x",
                "leave x",
                "bring back x of 1",
                "hold x",
                "leave x");
      }
      assertThat(story).endsWith("let go x");
    }
  }

  @Test
  void aCaptureBringsBackWhatItHolds() {
    try (World world = new World(FakeDriver.strict());
        DeviceStream stream = world.context.openStream(0)) {
      Moving x = new Moving("x", 1, 1);
      Moving y = new Moving("y", 2, 0);
      try (DeviceGraph graph = stream.capture("g", () -> use(stream, y, x))) {
        assertThat(graph.name()).isEqualTo("g");
        assertThat(story).containsSubsequence("bring back x of 2", "hold x", "leave x");
        assertThat(story).containsOnlyOnce("hold y");
      }
    }
  }

  @Test
  void whatCannotMoveSaysSo() {
    try (World world = new World(FakeDriver.strict())) {
      Operand away = new FakeBuffer(Operand.AWAY, 64);
      assertThatThrownBy(() -> use(world.context.stream(), away, new Moving("y", 2, 0)))
          .isInstanceOf(IllegalStateException.class)
          .hasMessageContaining("does not come back");
    }
  }
}
