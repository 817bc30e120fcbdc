package io.fairlead.device;

import io.fairlead.task.BriefLock;
import io.fairlead.task.Completion;
import java.util.ArrayList;
import java.util.List;

/**
 * The graphs of one context that are not gone.
 *
 * <pre>
 * field | writer                 | reader | mode, guard
 * open  | who makes one, owner   | any    | lock, a leaf
 * </pre>
 */
final class GraphTable {
  private final BriefLock lock = new BriefLock();
  private final List<Executable> open = new ArrayList<>();

  void remember(Executable executable) {
    lock.lock();
    try {
      open.add(executable);
    } finally {
      lock.unlock();
    }
  }

  void forget(Executable executable) {
    lock.lock();
    try {
      open.remove(executable);
    } finally {
      lock.unlock();
    }
  }

  private List<Executable> all() {
    lock.lock();
    try {
      return List.copyOf(open);
    } finally {
      lock.unlock();
    }
  }

  /** Closes all, and reports those that were open. Completes when all are gone. */
  Completion<Void> closeAll() {
    List<Completion<Void>> ends = new ArrayList<>();
    for (Executable executable : all()) {
      executable.closeLeaked();
      ends.add(executable.ended());
    }
    return DeviceContext.allOf(ends);
  }

  /** The context ends, and its work has. Owner only. */
  void endAll() {
    for (Executable executable : all()) {
      executable.shutLeaked();
      executable.end();
    }
  }
}
