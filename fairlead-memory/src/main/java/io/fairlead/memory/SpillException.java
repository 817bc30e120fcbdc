package io.fairlead.memory;

import io.fairlead.fault.FairleadException;
import io.fairlead.fault.Severity;
import java.nio.file.Path;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Bytes could not be put on the disk, or not be brought back from it. The text names the file or
 * directory and says what to do; {@link #getCause()} is what the file system said, if it did.
 *
 * <p>A failure to write loses nothing: what was to be written is still where it was.
 */
public final class SpillException extends FairleadException {
  private static final long serialVersionUID = 1L;

  /** What is wrong. */
  public enum Reason {
    /**
     * There is no room on the file system. Whoever frees some need not tell: it is tried again by
     * itself, at least once a second.
     */
    FULL,
    /**
     * The directory cannot be written to: it is read-only, gone, not permitted, or the device has
     * failed. Nothing is sent there until a trial has succeeded; trials go on by themselves.
     */
    UNUSABLE,
    /** The image cannot be read now. It may be possible later, as where a mount comes back. */
    UNREADABLE,
    /** What was read is not what was written. It is never handed out. */
    DAMAGED,
    /** The directory is not safe to write to, or not one at all. Found when it is opened. */
    REFUSED,
    /** The device was closed meanwhile. */
    CLOSED
  }

  private final Reason reason;
  private final transient Path path;

  SpillException(Reason reason, Path path, String message, @Nullable Throwable cause) {
    super(Severity.OPERATION, path + ": " + message, cause);
    this.reason = Objects.requireNonNull(reason, "reason");
    this.path = path;
  }

  /** What is wrong. Any thread; never blocks. */
  public Reason reason() {
    return reason;
  }

  /** The file or directory. Any thread; never blocks. */
  public Path path() {
    return path;
  }

  /**
   * Whether the same may succeed later without anybody's changing the program: so it is for {@link
   * Reason#FULL}, {@link Reason#UNUSABLE} and {@link Reason#UNREADABLE}. Any thread; never blocks.
   */
  public boolean isRetryable() {
    return switch (reason) {
      case FULL, UNUSABLE, UNREADABLE -> true;
      case DAMAGED, REFUSED, CLOSED -> false;
    };
  }
}
