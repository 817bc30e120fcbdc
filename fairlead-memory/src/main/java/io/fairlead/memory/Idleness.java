package io.fairlead.memory;

import io.fairlead.device.Mark;
import io.fairlead.task.Completion;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Tells which storages nobody has used for a whole time of grace, by two marks of the device's
 * {@link Ticks}, and whether the device has done with them. One thread.
 *
 * <pre>
 *   marks:         before ------- grace or longer ------- last --- now
 *   lastUse:  idle |                in use since
 * </pre>
 *
 * <p>Nobody need have asked the device how far it is, so this does, once for each use.
 */
final class Idleness {
  private final Ticks ticks;
  private final Runnable ended;

  /** Uses whose end was asked for. */
  private final Map<Mark, Completion<Void>> asked = new HashMap<>();

  private boolean marked;
  private long before;
  private long last;
  private long lastNanos;

  /**
   * @param ended told of the end of uses that were asked for; any thread, must not wait
   */
  Idleness(Ticks ticks, Runnable ended) {
    this.ticks = ticks;
    this.ended = ended;
  }

  /**
   * Somebody looks for what is idle; to be called at least about once in each grace, or else it
   * takes two of them until anything is.
   *
   * @param now of {@link System#nanoTime}
   */
  void look(long now, long graceNanos) {
    asked.values().removeIf(Completion::isDone);
    if (!marked || now - lastNanos >= graceNanos) {
      before = last;
      ticks.tick();
      last = ticks.now;
      lastNanos = now;
      marked = true;
    }
  }

  /**
   * Whether what was used last at that tick has not been used since the mark that is a grace old,
   * and these uses of it have ended.
   */
  boolean isIdle(long lastUse, List<Mark> uses) {
    return lastUse < before && uses.stream().allMatch(this::hasEnded);
  }

  private boolean hasEnded(Mark use) {
    return Frontier.isReachedIfKnown(use) || (!asked.containsKey(use) && ask(use));
  }

  /** Whether it has ended already. */
  private boolean ask(Mark use) {
    Completion<Void> end = Frontier.endOf(use);
    if (Frontier.isReachedIfKnown(use)) {
      return true;
    }
    asked.put(use, end);
    end.onDone(
        done -> {
          if (done.cause() == null) {
            ended.run();
          }
        });
    return false;
  }
}
