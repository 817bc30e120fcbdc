package io.fairlead.host;

import org.jspecify.annotations.Nullable;

/**
 * An event: names the last {@link EventRecord} made with it. Recording again puts a new one in its
 * place; whoever waits already waits for the old one, as CUDA has it.
 */
final class HostEvent extends HandleTable.Entry {
  private final HostContext context;

  /** Written by eventRecord, read by waits and queries: volatile; null while never recorded. */
  private volatile @Nullable EventRecord last;

  HostEvent(HostContext context) {
    this.context = context;
  }

  @Nullable EventRecord last() {
    return last;
  }

  void record(EventRecord recorded) {
    last = recorded;
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
