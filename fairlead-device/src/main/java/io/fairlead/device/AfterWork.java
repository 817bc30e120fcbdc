package io.fairlead.device;

import io.fairlead.device.spi.DriverException;
import io.fairlead.fault.Mutant;
import io.fairlead.task.Completion;
import java.util.ArrayList;
import java.util.List;

/**
 * What the owner does once work has ended: it destroys a handle, or lets go of memory that the work
 * used.
 *
 * <pre>
 * WAITING --the work has ended, or its context is lost or closed--> DONE, on the owner's thread; on
 *    |                                                one of its own if the owner has ended before
 *    ^ \------the wait failed otherwise------> NAPPING
 *    \-----------------the nap is over-----------/
 * </pre>
 *
 * A wait may fail and the work go on: the driver had no room for its signal, say. So that is not
 * the end, and the wait is begun again, each time later. A stream that its maker has destroyed is
 * not asked again, since its handle may be anything by now: nobody knows where its work ends, so
 * what waits for it is done when the context has ended.
 *
 * <p>Fields are used by one thread after the other.
 */
final class AfterWork {
  /** A wait that failed is begun again after that. */
  private static final long NAP_NANOS = 1_000_000;

  /** And after that at the latest. */
  private static final long NAP_NANOS_MAX = 100_000_000;

  /** Up to where a stream, of whichever context, is waited for. */
  record Work(StreamCore stream, long sequence) {
    static Work of(Mark mark) {
      return new Work(mark.stream().core(), mark.sequence());
    }
  }

  private final DeviceContext context;
  private final List<Work> works;
  private final Runnable then;
  private final boolean patient;
  private final List<Completion<Void>> waits = new ArrayList<>();

  /** How many of them have ended. */
  private int ended;

  private long nap = NAP_NANOS / 2;

  /**
   * @param context whose owner does it
   * @param patient whether work of which nobody knows the end is waited for until the context ends
   */
  AfterWork(DeviceContext context, List<Work> works, boolean patient, Runnable then) {
    this.context = context;
    this.works = works;
    this.patient = patient;
    this.then = then;
  }

  /** Any thread; never blocks. Once. */
  void begin() {
    context.remember(this);
    works.forEach(work -> waits.add(end(work))); // all now, so that all signals are on their way
    look();
  }

  /** One after the other, since one that fails must not hide one that goes on. */
  private void look() {
    while (ended < works.size() && waits.get(ended).state() == Completion.State.DONE) {
      ended++;
    }
    if (ended == works.size()) {
      context.errand(this::finish);
    } else {
      waits.get(ended).onDone(this::waited);
    }
  }

  private static Completion<Void> end(Work work) {
    return DeviceContext.endOf(work.stream, work.sequence);
  }

  private void waited(Completion<Void> end) {
    boolean over =
        works.get(ended).stream.context.failure() != null || Mutant.on("device.refused.is.end");
    boolean gone =
        end.cause() instanceof DeviceException e && e.status() == DriverException.INVALID_HANDLE;
    boolean last = !patient || context.hasEnded(); // who knows no end waits no longer than that
    if (over || end.state() == Completion.State.DONE || (gone && last)) {
      ended++;
      look();
    } else {
      nap = Math.min(2 * nap, NAP_NANOS_MAX);
      context.errandLater(nap, gone ? this::look : this::waitAgain);
    }
  }

  private void waitAgain() {
    waits.set(ended, end(works.get(ended)));
    look();
  }

  /** Does it, if it was not done before. Owner only. */
  void finish() {
    if (context.forget(this)) {
      then.run();
    }
  }
}
