package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/**
 * A place in the user's program. It costs more to write than to find, so that is left for later.
 */
final class Site {
  static final Site NOT_KEPT = new Site("(place not recorded)");
  static final Site NOT_SAMPLED =
      new Site("(place not recorded: one of very many; -Dfairlead.memory.sites=all records each)");
  static final Site DROPPED = new Site("(nowhere: it was dropped, and found by the collector)");

  private final StackWalker.@Nullable StackFrame frame;
  private final String instead;

  Site(StackWalker.StackFrame frame) {
    this.frame = frame;
    this.instead = "";
  }

  private Site(String instead) {
    this.frame = null;
    this.instead = instead;
  }

  boolean isKnown() {
    return frame != null;
  }

  @Override
  public String toString() {
    return frame == null ? instead : frame.toStackTraceElement().toString();
  }
}
