package io.fairlead.task;

import io.fairlead.fault.EngineException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * So many bytes, granted strictly in order: see {@link Admission#upTo}.
 *
 * <pre>
 * request: QUEUED → GRANTED → given back     its completion has the grant, which is closed once
 *                 → WITHDRAWN                its completion was cancelled
 *
 * field         | guard
 * free, waiting | lock, a leaf: nothing is called under it
 * </pre>
 */
final class Budget implements Admission {
  private final BriefLock lock = new BriefLock();
  private final Set<Request> waiting = new LinkedHashSet<>();
  private final long bytes;
  private long free;

  private static final class Request {
    final long bytes;
    final Completion.Source<AutoCloseable> source = Completion.source();

    Request(long bytes) {
      this.bytes = bytes;
    }
  }

  Budget(long bytes) {
    if (bytes < 1) {
      throw new IllegalArgumentException("a budget of " + bytes + " bytes: at least 1");
    }
    this.bytes = bytes;
    this.free = bytes;
  }

  @Override
  public Completion<AutoCloseable> admit(long wanted) {
    if (wanted > bytes) {
      return Completion.failed(
          new EngineException(
              "budget",
              wanted
                  + " bytes are asked for, of "
                  + bytes
                  + " that there are: ask for less, or "
                  + "give the budget more",
              null));
    }
    Request request = new Request(wanted);
    lock.lock();
    try {
      waiting.add(request);
    } finally {
      lock.unlock();
    }
    request.source.onCancel(() -> withdraw(request));
    release(0);
    return request.source.completion();
  }

  private void withdraw(Request request) {
    lock.lock();
    try {
      waiting.remove(request);
    } finally {
      lock.unlock();
    }
    release(0); // it may have been in the way of others
  }

  /** Takes bytes back, and grants what fits now. Any thread. */
  private void release(long returned) {
    for (Request next : take(returned)) {
      AtomicBoolean given = new AtomicBoolean();
      AutoCloseable grant =
          () -> {
            if (!given.getAndSet(true)) { // a second close gives nothing back
              release(next.bytes);
            }
          };
      if (!next.source.complete(grant)) {
        release(next.bytes); // withdrawn at this moment
      }
    }
  }

  private List<Request> take(long returned) {
    lock.lock();
    try {
      free += returned;
      List<Request> granted = new ArrayList<>(1);
      for (Request next : waiting) {
        if (next.bytes > free) {
          break;
        }
        free -= next.bytes;
        granted.add(next);
      }
      granted.forEach(waiting::remove);
      return granted;
    } finally {
      lock.unlock();
    }
  }
}
