package io.fairlead.memory;

import io.fairlead.task.BriefLock;
import io.fairlead.task.Collected;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Every storage of a device that was not freed, for reports, and what finds that a buffer was
 * dropped. Both in one object for each buffer: a set and a {@link java.lang.ref.Cleaner} would take
 * two, and most of the time that an allocation and its close have.
 *
 * <pre>
 * LISTED --freed--> GONE --its stripe is tidied--> not in any list
 *      \--its buffer is collected--> found, on a thread of the role CLEANER; listed until it is freed
 * </pre>
 *
 * <p>It keeps no {@link DeviceBuffer} alive, and the collector tells of none whose storage is not
 * listed any more. A task lists in one stripe, so that it seldom meets others.
 *
 * <p>Whoever frees takes no lock, and leaves an empty entry behind. The next one that is listed
 * takes the place of the newest if that is empty, as after a buffer that lived for a short while;
 * others go once a third of a stripe is empty.
 *
 * <p><b>Locks.</b> One for each stripe, a leaf: nothing is called while it is held.
 *
 * <pre>
 * field          | writer       | reader         | mode, guard
 * ---------------|--------------|----------------|-------------------------------------------------
 * first, next,   | who lists,   | same; all()    | the stripe's lock
 * listed         | who tidies   |                |
 * entry's storage| who frees it | any            | plain, null from then on: who comes after the
 *                |              |                | free finds it gone, anybody else either
 * gone           | who frees    | who frees      | plain: one that is lost is found by the next
 *                |              |                | tidying, which is due a little later
 * </pre>
 */
final class Live implements Iterable<Storage> {
  /** A power of two, and about as many as there are tasks that allocate at once. */
  private static final int STRIPES = 16;

  private final Stripe[] stripes = new Stripe[STRIPES];
  private final Consumer<Storage> dropped;

  /**
   * @param dropped told of storages whose buffer was collected, whether they are open or not; must
   *     not wait
   */
  Live(Consumer<Storage> dropped) {
    this.dropped = dropped;
    for (int i = 0; i < STRIPES; i++) {
      stripes[i] = new Stripe();
    }
  }

  /** Lists the storage of a buffer that nobody else has yet. Any thread. */
  void add(DeviceBuffer buffer, Storage storage) {
    Charge charge = storage.charge;
    long by = charge == null ? storage.id : charge.account.taskId;
    Stripe stripe = stripes[(int) by & (STRIPES - 1)];
    Entry entry = new Entry(buffer, this, storage, stripe);
    storage.listed = entry;
    stripe.add(entry);
  }

  /** Takes it from the list. Any thread, the owner's too; a second time does nothing. */
  void remove(Storage storage) {
    Entry entry = storage.listed;
    if (entry != null && entry.end()) {
      entry.stripe.left();
    }
  }

  /** For tests: entries in the lists, empty ones included. */
  int size() {
    return Arrays.stream(stripes).mapToInt(Stripe::size).sum();
  }

  /** All that are listed now. */
  List<Storage> all() {
    List<Storage> all = new ArrayList<>();
    for (Stripe stripe : stripes) {
      stripe.addTo(all);
    }
    return all;
  }

  /** Of all that are listed now. */
  @Override
  public Iterator<Storage> iterator() {
    return all().iterator();
  }

  /** One storage. */
  static final class Entry extends Collected {
    private final Live live;
    private final Stripe stripe;
    private @Nullable Storage storage;
    private @Nullable Entry next;

    private Entry(DeviceBuffer buffer, Live live, Storage storage, Stripe stripe) {
      super(buffer);
      this.live = live;
      this.storage = storage;
      this.stripe = stripe;
    }

    /** Of a storage that is freed; false if that was so before. */
    private boolean end() {
      boolean was = storage != null;
      storage = null;
      return was;
    }

    @Override
    protected void collected() {
      Storage open = storage;
      if (open != null) {
        live.dropped.accept(open);
      }
    }
  }

  private static final class Stripe {
    /** As many entries that are gone are not worth a walk. */
    private static final int FEW = 64;

    private final BriefLock lock = new BriefLock();
    private @Nullable Entry first;
    private int listed;
    private int gone;

    void add(Entry entry) {
      lock.lock();
      try {
        Entry before = first;
        if (before != null && before.storage == null) {
          before = before.next;
          listed--;
          gone--;
        }
        entry.next = before;
        first = entry;
        listed++;
      } finally {
        lock.unlock();
      }
    }

    /** Of an entry that has just gone. */
    void left() {
      if (++gone > FEW + listed / 3) {
        tidy();
      }
    }

    private void tidy() {
      lock.lock();
      try {
        gone = 0;
        Entry kept = null;
        for (Entry each = first; each != null; each = each.next) {
          if (each.storage == null) {
            listed--;
          } else if (kept == null) {
            first = each;
            kept = each;
          } else {
            kept.next = each;
            kept = each;
          }
        }
        if (kept == null) {
          first = null;
        } else {
          kept.next = null;
        }
      } finally {
        lock.unlock();
      }
    }

    void addTo(List<Storage> all) {
      lock.lock();
      try {
        for (Entry each = first; each != null; each = each.next) {
          Storage open = each.storage;
          if (open != null) {
            all.add(open);
          }
        }
      } finally {
        lock.unlock();
      }
    }

    /** For tests. */
    int size() {
      lock.lock();
      try {
        return listed;
      } finally {
        lock.unlock();
      }
    }
  }
}
