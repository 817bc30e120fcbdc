package io.fairlead.host;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * An event: names the last {@link EventRecord} made with it. Recording again puts a new one in its
 * place; whoever waits already waits for the old one, as CUDA has it.
 */
final class HostEvent extends HandleTable.Entry {
  private final HostContext context;

  private static final VarHandle LAST;

  static {
    try {
      LAST = MethodHandles.lookup().findVarHandle(HostEvent.class, "last", EventRecord.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Written by eventRecord, read by waits and queries: volatile; null while never recorded. */
  private volatile @Nullable EventRecord last;

  HostEvent(HostContext context) {
    this.context = context;
  }

  @Nullable EventRecord last() {
    return last;
  }

  /** Names {@code recorded}, unless it no longer names {@code before}; says whether it does. */
  boolean record(@Nullable EventRecord before, EventRecord recorded) {
    // Compare and set: of two that record at once, the later one in the stream must win.
    return LAST.compareAndSet(this, before, recorded);
  }

  @Override
  HandleTable.Kind kind() {
    return HandleTable.Kind.EVENT;
  }

  @Override
  HostContext context() {
    return context;
  }
}
