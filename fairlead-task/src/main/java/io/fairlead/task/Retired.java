package io.fairlead.task;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * Something native that nobody uses any more, waiting for its owner to release it. It is its own
 * queue node, so that retiring it needs no memory and cannot be refused: the queue is bounded by
 * what is alive.
 *
 * <pre>
 * field  | writer                         | reader | mode, guard
 * taken  | first Owner.retire (any)       | same   | getAndSet: one retire wins
 * next   | the retiring thread, once;     | owner  | plain, published by the owner's CAS of its head
 *        | then the owner while draining  |        |
 * </pre>
 */
public abstract class Retired {
  private static final VarHandle TAKEN;

  static {
    try {
      TAKEN = MethodHandles.lookup().findVarHandle(Retired.class, "taken", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  @SuppressWarnings("unused") // through TAKEN
  private volatile boolean taken;

  @Nullable Retired next;

  /** For subclasses. */
  protected Retired() {}

  /**
   * Releases what this stands for. On the owner's thread, once. What it throws is logged, and the
   * owner goes on.
   */
  protected abstract void release();

  /** True for the first caller only. */
  final boolean take() {
    // getAndSet: close() and the cleaner may retire the same thing at once; one of them wins
    return !(boolean) TAKEN.getAndSet(this, true);
  }
}
