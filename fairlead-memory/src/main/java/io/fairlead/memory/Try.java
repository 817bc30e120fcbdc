package io.fairlead.memory;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * One run of a body of {@link Oom}, and what it has allocated so far, in its task and in the tasks
 * that it forked.
 *
 * <pre>
 * field  | writer        | reader | mode
 * made   | who allocates, closes | its task, {@link Ladder} | concurrent set
 * end    | {@link Ladder}, a drill | anybody in it | volatile: the first one stands
 * </pre>
 */
final class Try {
  final Account account;

  /** The try around it in its task, or its parents'. */
  final @Nullable Try outer;

  /** In the order in which work began; the same for every try of one piece of work. */
  final long number;

  /** Bytes that were set aside before it began. */
  final long reserved;

  final Set<Storage> made = ConcurrentHashMap.newKeySet();
  private volatile @Nullable Verdict end;

  Try(Account account, long number, long reserved) {
    this.account = account;
    this.outer = account.attempt;
    this.number = number;
    this.reserved = reserved;
  }

  /** It has to give way; whoever is in it learns that at its next allocation. */
  void rollBack(Verdict why) {
    end = why;
  }

  /** Why it has to give way; null if it need not. */
  @Nullable Verdict end() {
    return end;
  }

  /** The end of this one, or of one around it. */
  @Nullable Verdict endAround() {
    for (Try each = this; each != null; each = each.outer) {
      Verdict known = each.end;
      if (known != null) {
        return known;
      }
    }
    return null;
  }

  /** Whether this is the other one, or around it. */
  boolean isAround(@Nullable Try other) {
    for (Try each = other; each != null; each = each.outer) {
      if (each == this) {
        return true;
      }
    }
    return false;
  }

  /** What its open buffers take on the device, or would. */
  long bytes() {
    return made.stream().mapToLong(storage -> Sizes.rounded(storage.bytes)).sum();
  }
}
