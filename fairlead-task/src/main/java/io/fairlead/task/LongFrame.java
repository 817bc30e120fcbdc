package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/** A forked {@link LongFork}. */
public final class LongFrame extends JoinFrame {
  @Nullable LongFork fn;
  long argument;
  long result;

  LongFrame(Forks forks, int index) {
    super(forks, index);
  }

  @Override
  @SuppressWarnings("NullAway") // forked, so there is a function
  void call(Forks own, TaskScope<?> scope) {
    result = own.call(scope, fn, argument);
  }
}
