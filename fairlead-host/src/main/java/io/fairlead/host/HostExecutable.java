package io.fairlead.host;

import io.fairlead.host.pool.SpinLock;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A graph that can be launched. Its launches follow each other, on whichever streams.
 *
 * <pre>
 * field | writer      | reader      | mode, guard
 * last  | who launches| who launches| lock, so that two launches do not mix
 * </pre>
 */
final class HostExecutable extends HandleTable.Entry {
  private final HostContext context;
  private final List<Recipe> recipes;
  private final SpinLock lock = new SpinLock();
  private @Nullable EventRecord last;

  HostExecutable(HostContext context, List<Recipe> recipes) {
    this.context = context;
    this.recipes = recipes;
  }

  /** All operations are made before the first one is enqueued: one that is refused leaves none. */
  void launch(HostStream stream) {
    List<Operation> operations = recipes.stream().map(recipe -> recipe.make(stream)).toList();
    EventRecord end = new EventRecord(stream);
    lock.lock();
    try {
      EventRecord before = last;
      if (before != null && before.stream != stream && !before.isDone()) {
        stream.enqueue(new StreamOperations.Wait(before));
      }
      operations.forEach(stream::enqueue);
      stream.enqueue(end);
      last = end;
    } finally {
      lock.unlock();
    }
  }

  @Override
  HandleTable.Kind kind() {
    return HandleTable.Kind.EXECUTABLE;
  }

  @Override
  HostContext context() {
    return context;
  }
}
