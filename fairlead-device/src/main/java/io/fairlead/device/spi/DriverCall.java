package io.fairlead.device.spi;

/** The driver calls that may or may not need a current context. */
public enum DriverCall {
  STREAM_CREATE,
  STREAM_DESTROY,
  SIGNAL,
  STREAM_SYNCHRONIZE,
  EVENT_CREATE,
  EVENT_DESTROY,
  EVENT_RECORD,
  EVENT_QUERY,
  STREAM_WAIT_EVENT,
  ALLOC_ASYNC,
  FREE_ASYNC,
  HOST_ALLOC,
  HOST_FREE,
  COPY,
  FILL,
  MODULE_LOAD,
  MODULE_UNLOAD,
  KERNEL,
  LAUNCH,
  MEMORY_INFO,
  /** {@link Driver#trimPool}. */
  TRIM,
  CONNECT,
  PEER_COPY,
  /** {@link Graphs#beginCapture} and {@link Graphs#endCapture}. */
  CAPTURE,
  /** {@link Graphs#create}, the nodes, and {@link Graphs#instantiate}. */
  GRAPH_BUILD,
  /** {@link Graphs#launch}. */
  GRAPH_LAUNCH,
  /** {@link Graphs#destroyGraph} and {@link Graphs#destroyExecutable}. */
  GRAPH_DESTROY
}
