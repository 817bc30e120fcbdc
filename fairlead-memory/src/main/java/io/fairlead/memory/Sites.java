package io.fairlead.memory;

import java.util.stream.Stream;

/**
 * Finds the places in the user's program that called us, of one device.
 *
 * <p>Looking for one takes a microsecond or two, more than all the rest of a buffer's life. So a
 * device that makes many buffers looks for some of them only: it has places to spend, and earns new
 * ones as time goes by.
 *
 * <pre>
 * field    | writer | reader | mode
 * left     | any    | any    | plain: a lost update spends or saves a place
 * earnedAt | any    | any    | plain, as left
 * skipped  | any    | any    | plain: a lost update makes the next look at the clock earlier or later
 * </pre>
 */
final class Sites {
  /** Spent at once by who makes many: as many as a program has buffers that it keeps. */
  private static final int SAVED_MAX = 2048;

  /**
   * Of these, both ends take one part in a hundred; a third before their code is compiled, when
   * each takes fifty microseconds.
   */
  private static final long NANOS_EACH = 300_000;

  /** Looking at the clock costs as much as a tenth of a buffer's life. */
  private static final int LOOK_EVERY = 8;

  private static final StackWalker WALKER = StackWalker.getInstance();

  private final CreationSites kept;
  private int left = SAVED_MAX;
  private long earnedAt = System.nanoTime();
  private int skipped;

  Sites(CreationSites kept) {
    this.kept = kept;
  }

  /** The place of the caller, if it is this one's turn. Any thread. */
  Site caller() {
    return switch (kept) {
      case NONE -> Site.NOT_KEPT;
      case ALL -> here();
      case SAMPLED -> spend() ? here() : Site.NOT_SAMPLED;
    };
  }

  /** The place that ends what {@code made} began: known for the same ones. */
  Site callerOfSame(Site made) {
    return made.isKnown() ? here() : made;
  }

  /** The place of the caller, for what is told at once: unless nobody wants to know any. */
  Site callerToTell() {
    return kept == CreationSites.NONE ? Site.NOT_KEPT : here();
  }

  private boolean spend() {
    if (left > 0) {
      left--;
      return true;
    }
    if (skipped > 0) {
      skipped--;
      return false;
    }
    long now = System.nanoTime();
    long earned = (now - earnedAt) / NANOS_EACH;
    if (earned == 0) {
      skipped = LOOK_EVERY - 1;
      return false;
    }
    earnedAt = now;
    left = (int) Math.min(earned, SAVED_MAX) - 1;
    return true;
  }

  /** The nearest frame outside the path's own packages. */
  private static Site here() {
    return WALKER.walk(Sites::firstOutside);
  }

  private static Site firstOutside(Stream<StackWalker.StackFrame> frames) {
    return frames
        .filter(frame -> !isOurs(frame.getClassName()))
        .findFirst()
        .map(Site::new)
        .orElse(Site.NOT_KEPT);
  }

  /** The classes that a user calls through on the way here; not their tests, nor our users. */
  private static boolean isOurs(String className) {
    return className.startsWith("java.")
        || isIn(className, Sites.class)
        || isIn(className, Device.class)
        || isIn(className, DeviceBuffer.class);
  }

  private static boolean isIn(String className, Class<?> type) {
    String name = type.getName();
    return className.equals(name) || className.startsWith(name + "$");
  }
}
