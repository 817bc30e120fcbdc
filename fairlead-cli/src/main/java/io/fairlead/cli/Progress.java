package io.fairlead.cli;

import java.io.PrintWriter;
import java.util.Locale;
import java.util.function.Supplier;

/**
 * Tells a person on standard error how far the work is: one line that is rewritten on a terminal,
 * else a plain line now and then. Never on standard output, which is for results.
 *
 * <p>Threads: any; one lock, under which only the writer is called.
 */
public final class Progress {
  /** How often a live line is rewritten: faster than this nobody reads it. */
  private static final long LIVE_NANOS = 100_000_000L;

  /** How often a plain line is written: a log should not fill with them. */
  private static final long PLAIN_NANOS = 2_000_000_000L;

  private final PrintWriter out;
  private final boolean live;
  private final long startNanos = System.nanoTime();
  private long nextNanos;
  private int shownLength;

  private Progress(PrintWriter out, boolean live) {
    this.out = out;
    this.live = live;
    this.nextNanos = startNanos + (live ? 0 : PLAIN_NANOS);
  }

  /** Writes to {@code out}; {@code live} if it is a terminal that can rewrite its line. */
  public static Progress to(PrintWriter out, boolean live) {
    return new Progress(out, live);
  }

  /** Whether standard error looks like a terminal that a line can be rewritten on. */
  public static boolean onTerminal() {
    @SuppressWarnings("SystemConsoleNull") // NullAway's model of the JDK still says it may be null
    boolean terminal = System.console() != null && System.console().isTerminal();
    return terminal && !"dumb".equals(System.getenv("TERM"));
  }

  /** The state of the work right now; shown only as often as is useful. */
  public synchronized void update(Supplier<String> what) {
    long now = System.nanoTime();
    if (now < nextNanos) {
      return;
    }
    nextNanos = now + (live ? LIVE_NANOS : PLAIN_NANOS);
    String text = stamped(now, what.get());
    if (live) {
      rewrite(text);
    } else {
      out.println(text);
    }
  }

  /** A step that is done: always shown, and stays. */
  public synchronized void done(String what) {
    String text = stamped(System.nanoTime(), what);
    clear();
    out.println(text);
  }

  /** Removes a live line, before something else is written. */
  public synchronized void clear() {
    if (shownLength > 0) {
      out.print("\r" + " ".repeat(shownLength) + "\r");
      out.flush();
      shownLength = 0;
    }
  }

  private void rewrite(String text) {
    String padding = " ".repeat(Math.max(0, shownLength - text.length()));
    out.print("\r" + text + padding);
    out.flush();
    shownLength = text.length();
  }

  private String stamped(long now, String what) {
    return String.format(Locale.ROOT, "[%7.2f s] %s", (now - startNanos) / 1e9, what);
  }
}
