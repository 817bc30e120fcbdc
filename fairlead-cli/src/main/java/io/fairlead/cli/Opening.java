package io.fairlead.cli;

import io.fairlead.device.OutOfDeviceMemoryException;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.solver.SparseSolver;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/**
 * Opens the devices on a thread of its own while a file is read, and then lets the compiler see on
 * them what comes next.
 *
 * <pre>
 * BEGUN → OPEN → PREPARED     open() returns from OPEN on, prepared() from PREPARED on
 *      ↘ FAILED               open() throws why
 * </pre>
 *
 * The one thread that began it asks and closes. {@link #close} may come at any time; it ends the
 * preparation, and closes what was opened.
 */
final class Opening implements AutoCloseable {
  private final CompletableFuture<Fairlead> opened = new CompletableFuture<>();
  private final CompletableFuture<Fairlead> prepared;
  private volatile boolean stopped;

  private Opening(FairleadConfig config, boolean prepares) {
    prepared = prepares ? opened.thenApply(this::prepare) : opened;
    Thread.ofPlatform().daemon().name("fairlead-opening").start(() -> open(config));
  }

  /** Begins. */
  static Opening begin(FairleadConfig config, boolean prepares) {
    return new Opening(config, prepares);
  }

  private void open(FairleadConfig config) {
    try {
      opened.complete(Fairlead.open(config));
    } catch (RuntimeException | Error failure) {
      opened.completeExceptionally(failure);
    }
  }

  private Fairlead prepare(Fairlead fairlead) {
    try {
      SparseSolver.prepare(fairlead, () -> stopped);
    } catch (OutOfDeviceMemoryException tooSmall) {
      // Whoever comes next will say so, and of a system that the user knows.
    }
    return fairlead;
  }

  /** Ends the preparation soon, and returns what was opened, or throws why it could not be. */
  Fairlead open() {
    stopped = true;
    return join(opened);
  }

  /** Waits until the preparation uses the devices no more. */
  void prepared() {
    join(prepared);
  }

  /** The result, or what ended it, as it is. */
  private static Fairlead join(CompletableFuture<Fairlead> future) {
    try {
      return future.join();
    } catch (CompletionException failure) {
      throw switch (failure.getCause()) {
        case RuntimeException cause -> cause;
        case Error cause -> throw cause;
        case null, default -> failure;
      };
    }
  }

  @Override
  public void close() {
    stopped = true;
    prepared.handle((fairlead, failure) -> true).join();
    if (!opened.isCompletedExceptionally()) {
      opened.join().close();
    }
  }
}
