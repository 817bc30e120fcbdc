package io.fairlead.memory;

import io.fairlead.device.Access;
import io.fairlead.device.spi.Driver;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Checks that uses of memory were put into an order, by what the driver was told alone: it sees
 * operations, event records and waits for events, keeps a vector clock for each stream, and knows
 * nothing of ledgers.
 *
 * <p>Only for a device on which nothing ends meanwhile: what has ended needs no order.
 *
 * <p>One lock, held over the driver's call too, so that what is recorded has the order in which the
 * driver was told it. Any thread.
 */
final class RecordedOrder {
  private record Use(long stream, long number, Access access) {}

  private final Map<Long, Map<Long, Long>> clocks = new HashMap<>();
  private final Map<Long, Map<Long, Long>> events = new HashMap<>();
  private final Map<Long, List<Use>> uses = new HashMap<>();
  private final List<String> races = new ArrayList<>();

  /** The driver, watched. */
  Driver around(Driver driver) {
    return DriverAround.of(
        driver,
        (name, arguments, call) ->
            switch (name) {
              case "eventRecord", "streamWaitEvent" -> watched(name, arguments, call);
              default -> call.make();
            });
  }

  private synchronized @Nullable Object watched(
      String name, Object[] arguments, DriverAround.Call call) throws Throwable {
    Object result = call.make();
    long first = (long) arguments[0];
    long second = (long) arguments[1];
    if (name.equals("eventRecord")) {
      events.put(first, new HashMap<>(clock(second)));
    } else {
      events
          .getOrDefault(second, Map.of())
          .forEach((of, at) -> clock(first).merge(of, at, Math::max));
    }
    return result;
  }

  private Map<Long, Long> clock(long stream) {
    return clocks.computeIfAbsent(stream, _ -> new HashMap<>());
  }

  /** An operation that uses the memory is enqueued just now: inside its body. */
  synchronized void use(long stream, long memory, Access access) {
    Map<Long, Long> mine = clock(stream);
    List<Use> before = uses.computeIfAbsent(memory, _ -> new ArrayList<>());
    for (Use use : before) {
      boolean conflict = use.access != Access.READ || access != Access.READ;
      if (conflict && use.stream != stream && mine.getOrDefault(use.stream, 0L) < use.number) {
        races.add(
            access + " of " + memory + " on " + stream + " is not after " + use + "; " + mine);
      }
    }
    long number = mine.merge(stream, 1L, Long::sum);
    before.add(new Use(stream, number, access));
  }

  /** Pairs of which nothing says which one is first. */
  synchronized List<String> races() {
    return List.copyOf(races);
  }

  /** How many uses were seen. */
  synchronized int count() {
    return uses.values().stream().mapToInt(List::size).sum();
  }
}
