package io.fairlead.memory;

import io.fairlead.device.DeviceContext;
import io.fairlead.device.Mark;
import io.fairlead.device.spi.DriverException;
import io.fairlead.task.Binding;
import io.fairlead.task.Completion;
import io.fairlead.task.Retired;
import io.fairlead.task.Role;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What becomes of others' memory once its last use has ended: its maker is told, once, on the
 * thread of the device's owner, or on one of its own if the device was closed before that.
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
    List<Completion<Void>> ends = new ArrayList<>();
    for (Mark mark : frontier) {
      ends.add(Frontier.endOf(mark));
    }
    ended(frontier, ends, 0);
  }

  /**
   * One after the other, since one that fails must not hide one that goes on. A wait that failed
   * says nothing of the use: then the context waits for it, as long as it takes.
   */
  private void ended(List<Mark> uses, List<Completion<Void>> ends, int next) {
    if (next < uses.size()) {
      ends.get(next).onDone(end -> ended(uses, ends, next, end));
    } else if (!context.owner().retire(new Release(this))) {
      // A lease outlived the device, or another device its use. Whoever has ended it may be a
      // driver's thread, or a carrier, and the maker may wait for the driver.
      Role.OWNER.newThread("release", this::releaseNow).start();
    }
  }

  private void ended(List<Mark> uses, List<Completion<Void>> ends, int use, Completion<Void> end) {
    Mark mark = uses.get(use);
    if (end.cause() == null || mark.stream().context().isOver()) {
      ended(uses, ends, use + 1);
    } else {
      context.afterWork(List.of(mark), () -> ended(uses, ends, use + 1));
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
