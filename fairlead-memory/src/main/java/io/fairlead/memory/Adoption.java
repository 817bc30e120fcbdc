package io.fairlead.memory;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.Mark;
import io.fairlead.device.spi.DriverException;
import io.fairlead.task.Binding;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What becomes of others' memory once its last use has ended: its maker is told, once, on the
 * thread of the device's owner.
 *
 * <p>Its end: the storage is closed → every use has ended, or can end no more since the context is
 * lost → retired to the owner → {@code release} runs.
 */
final class Adoption {
  private final DeviceContext context;
  private final Runnable release;
  private final Completion.Source<@Nullable Void> released = Completion.source();

  Adoption(DeviceContext context, Runnable release) {
    this.context = context;
    this.release = release;
  }

  /** Done once the maker was told. */
  Completion<@Nullable Void> released() {
    return released.completion();
  }

  /** No use comes after these. Any thread but the cleaner's; never blocks. Once. */
  void end(List<Mark> frontier) {
    List<Completion<Void>> uses = new ArrayList<>();
    for (Mark mark : frontier) {
      uses.add(Frontier.endOf(mark));
    }
    ended(uses, 0);
  }

  /** One after the other, since one that fails must not hide one that goes on. */
  private void ended(List<Completion<Void>> uses, int next) {
    if (next < uses.size()) {
      uses.get(next).onDone(_ -> ended(uses, next + 1));
    } else {
      context.owner().retire(new Release(this));
    }
  }

  private void releaseNow() {
    try {
      release(context.binding());
    } finally {
      released.complete(null);
    }
  }

  private void release(Binding binding) {
    long previous;
    try {
      previous = binding.bind();
    } catch (DriverException e) {
      release.run(); // the context has ended by now; the maker is told all the same
      return;
    }
    try {
      release.run();
    } finally {
      binding.restore(previous);
    }
  }

  private static final class Release extends Retired {
    private final Adoption adoption;

    Release(Adoption adoption) {
      this.adoption = adoption;
    }

    @Override
    protected void release() {
      adoption.releaseNow();
    }
  }
}
