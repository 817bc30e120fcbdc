package io.fairlead.task;

import org.jspecify.annotations.Nullable;

/**
 * A forked {@link ObjectFork}.
 *
 * @param <R> its result
 */
@SuppressWarnings("UnusedTypeParameter") // what join gives
public final class ObjectFrame<R extends @Nullable Object> extends JoinFrame {
  @Nullable ObjectFork<?, ?> fn;
  @Nullable Object argument;
  @Nullable Object result;

  ObjectFrame(Forks forks, int index) {
    super(forks, index);
  }

  @Override
  @SuppressWarnings({"NullAway", "unchecked"}) // forked, with an argument of its function's type
  void call(Forks own, TaskScope<?> scope) {
    result = own.call(scope, (ObjectFork<@Nullable Object, ?>) fn, argument);
  }

  @Override
  void forget() {
    argument = null;
    result = null;
  }
}
