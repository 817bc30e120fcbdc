package io.fairlead.cli.torture;

import java.io.PrintWriter;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Reads what Fairlead logs while it is tortured: a failure that has no other place to go to is a
 * fault, and what is said of failures on purpose is nothing new.
 *
 * <p>Closing it lets the log go where it went before. Any thread logs; one opens and closes.
 */
final class LogWatch extends Handler implements AutoCloseable {
  private final Logger logger = Logger.getLogger("io.fairlead"); // kept, or the settings are lost
  private final PrintWriter out;
  private volatile @Nullable LogRecord failure;

  private LogWatch(PrintWriter out) {
    this.out = out;
  }

  static LogWatch begin(PrintWriter out) {
    LogWatch watch = new LogWatch(out);
    watch.logger.addHandler(watch);
    watch.logger.setUseParentHandlers(false);
    return watch;
  }

  @Override
  public void publish(LogRecord line) {
    if (line.getThrown() != null) {
      failure = line;
    } else if (!String.valueOf(line.getMessage()).contains("on purpose")) {
      out.println(line.getMessage());
    }
  }

  /**
   * Looks whether something failed that nobody was told but the log.
   *
   * @throws TortureFailedException if so
   */
  void require() {
    LogRecord logged = failure;
    if (logged != null) {
      throw new TortureFailedException("the log says: " + logged.getMessage(), logged.getThrown());
    }
  }

  @Override
  public void flush() {
    out.flush();
  }

  @Override
  public void close() {
    logger.setUseParentHandlers(true);
    logger.removeHandler(this);
  }
}
