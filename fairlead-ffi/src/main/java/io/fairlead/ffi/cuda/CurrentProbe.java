package io.fairlead.ffi.cuda;

import io.fairlead.device.spi.DriverCall;
import io.fairlead.device.spi.Grid;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.EnumSet;
import java.util.function.IntSupplier;

/**
 * Finds out which calls work with no context current, by making each of them so on the objects of a
 * first context, and looking at what the driver answers. Anything but success counts as a need.
 *
 * <p>Calls that name no object of their context (create, pin, load, connect, memory info) act on
 * whichever is current, so they need theirs whatever a driver answers with none. So does a kernel's
 * look-up, which may bring code to the device: a trial would find it there.
 */
final class CurrentProbe {
  /** Any driver since CUDA 9 takes it; an empty kernel, so that a launch can be tried. */
  private static final String EMPTY_KERNEL =
      """
      .version 6.0
      .target sm_50
      .address_size 64
      .visible .entry fairlead_probe()
      {
      ret;
      }
      """;

  private static final int BYTES = 256;
  private static final int HOST_FLAGS = 0x03;
  private static final int CAPTURE_MODE_RELAXED = 2;

  private final CudaApi api;
  private final long context;
  private final boolean wide;
  private final EnumSet<DriverCall> needed = EnumSet.allOf(DriverCall.class);
  private boolean statusNeeds = true;
  private final Scratch scratch = Scratch.take();
  private long stream;
  private long event;
  private long device;
  private long host;
  private long hostOnDevice;
  private long module;
  private long kernel;
  private long graph;
  private long executable;
  private boolean capturing;

  private CurrentProbe(CudaContext context) {
    this.api = context.api;
    this.context = context.raw;
    this.wide = context.driver.wideSignals();
  }

  /** The context is current before and after. What cannot be tried counts as a need. */
  static void run(CudaContext context, DriverState.NeedsCurrent needs) {
    CudaApi api = context.api;
    CurrentProbe probe = new CurrentProbe(context);
    try {
      probe.make();
      api.ctxSetCurrent(0);
      try {
        probe.tryAll();
      } finally {
        api.ctxSetCurrent(context.raw);
      }
      probe.clean();
    } finally {
      probe.scratch.giveBack();
    }
    needs.learn(probe.needed, probe.statusNeeds);
  }

  private void make() {
    stream = made(api.streamCreateWithPriority(scratch.answer(), CudaStream.NON_BLOCKING, 0));
    event = made(api.eventCreate(scratch.answer(), CudaEvent.DISABLE_TIMING));
    host = made(api.memHostAlloc(scratch.answer(), BYTES, HOST_FLAGS));
    if (host != 0) {
      hostOnDevice = made(api.memHostGetDevicePointer(scratch.answer(), host, 0));
    }
    if (stream != 0) {
      device = made(api.memAllocAsync(scratch.answer(), BYTES, stream));
    }
    loadKernel();
    if (api.graphs().missing().isEmpty()) {
      makeGraph();
    }
  }

  private void makeGraph() {
    long nodes = made(api.graphs().create(scratch.answer(), 0));
    if (nodes != 0) {
      executable = made(api.graphs().instantiate(scratch.answer(), nodes, 0));
      api.graphs().destroy(nodes);
    }
  }

  private void loadKernel() {
    try (Arena arena = Arena.ofConfined()) {
      long image = arena.allocateFrom(EMPTY_KERNEL).address();
      module = made(api.moduleLoadDataEx(scratch.answer(), image, 0, 0, 0));
      if (module != 0) {
        MemorySegment name = arena.allocateFrom("fairlead_probe");
        kernel = made(api.moduleGetFunction(scratch.answer(), module, name.address()));
      }
    }
  }

  private long made(int status) {
    return status == Status.SUCCESS ? scratch.longAnswer() : 0;
  }

  private void tryAll() {
    if (stream == 0 || event == 0 || device == 0 || hostOnDevice == 0) {
      return;
    }
    attempt(DriverCall.SIGNAL, this::signal);
    attempt(DriverCall.EVENT_RECORD, () -> api.eventRecord(event, stream));
    attempt(DriverCall.STREAM_WAIT_EVENT, () -> api.streamWaitEvent(stream, event, 0));
    attempt(DriverCall.COPY, this::copy);
    attempt(DriverCall.FILL, () -> api.memsetD8Async(device, (byte) 0, BYTES, stream));
    if (api.peers().hasCopies()) {
      attempt(DriverCall.PEER_COPY, this::copyPeer);
    }
    attempt(DriverCall.ALLOC_ASYNC, this::allocate);
    if (kernel != 0) {
      attempt(DriverCall.LAUNCH, this::launch);
    }
    if (executable != 0) {
      attempt(DriverCall.GRAPH_LAUNCH, () -> api.graphs().launch(executable, stream));
      attempt(DriverCall.CAPTURE, this::capture);
    }
    if (api.graphs().hasCaptureStatus()) {
      statusNeeds = api.graphs().streamIsCapturing(stream, scratch.answer()) != Status.SUCCESS;
    }
    attempt(DriverCall.STREAM_SYNCHRONIZE, () -> api.streamSynchronize(stream));
    attempt(DriverCall.EVENT_QUERY, () -> api.eventQuery(event));
    release();
  }

  /** Of both kinds. */
  private int signal() {
    int status =
        wide
            ? api.streamWriteValue64(stream, hostOnDevice, 0, 0)
            : api.memsetD32Async(hostOnDevice, 0, 1, stream);
    return status != Status.SUCCESS ? status : api.eventRecord(event, stream);
  }

  private int copy() {
    long half = BYTES / 2;
    int up = api.memcpyHtoDAsync(device, host, half, stream);
    int across = api.memcpyDtoDAsync(device + half, device, half, stream);
    int down = api.memcpyDtoHAsync(host + half, device, half, stream);
    return up != Status.SUCCESS ? up : across != Status.SUCCESS ? across : down;
  }

  private int allocate() {
    int status = api.memAllocAsync(scratch.answer(), BYTES, stream);
    return status == Status.SUCCESS ? api.memFreeAsync(scratch.longAnswer(), stream) : status;
  }

  private int launch() {
    int status = api.launchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
    return status == Status.SUCCESS && api.launches().hasLaunchAttributes()
        ? launchWithAttributes()
        : status;
  }

  private int launchWithAttributes() {
    try (Arena arena = Arena.ofConfined()) {
      long config = LaunchExtras.config(arena, stream, Grid.of(1), 1).address();
      return api.launches().launchKernelEx(config, kernel, 0, 0);
    }
  }

  /** Within one device, which needs no other. */
  private int copyPeer() {
    long half = BYTES / 2;
    return api.peers().memcpyPeerAsync(device + half, context, device, context, half, stream);
  }

  private int capture() {
    int status = api.graphs().streamBeginCapture(stream, CAPTURE_MODE_RELAXED);
    if (status == Status.SUCCESS) {
      capturing = true;
      status = endCapture();
    }
    return status;
  }

  private int endCapture() {
    int status = api.graphs().streamEndCapture(stream, scratch.answer());
    if (status == Status.SUCCESS) {
      graph = scratch.longAnswer();
      capturing = false;
    }
    return status;
  }

  /** What these take away is not there to be taken away again. */
  private void release() {
    if (graph != 0) {
      releaseGraph();
    }
    if (attempt(DriverCall.FREE_ASYNC, () -> api.memFreeAsync(device, stream))) {
      device = 0;
    }
    if (attempt(DriverCall.EVENT_DESTROY, () -> api.eventDestroy(event))) {
      event = 0;
    }
    if (device == 0 && attempt(DriverCall.STREAM_DESTROY, () -> api.streamDestroy(stream))) {
      stream = 0;
    }
    if (attempt(DriverCall.HOST_FREE, () -> api.memFreeHost(host))) {
      host = 0;
    }
  }

  private void releaseGraph() {
    if (attempt(DriverCall.GRAPH_DESTROY, () -> api.graphs().destroy(graph))) {
      graph = 0;
    }
    if (attempt(DriverCall.GRAPH_DESTROY, () -> api.graphs().execDestroy(executable))) {
      executable = 0;
    }
    if (graph != 0 || executable != 0) {
      needed.add(DriverCall.GRAPH_DESTROY);
    }
  }

  private boolean attempt(DriverCall call, IntSupplier body) {
    boolean worked = body.getAsInt() == Status.SUCCESS;
    if (worked) {
      needed.remove(call);
    }
    return worked;
  }

  /** Current again. */
  private void clean() {
    if (capturing) {
      endCapture();
    }
    if (graph != 0) {
      api.graphs().destroy(graph);
    }
    if (executable != 0) {
      api.graphs().execDestroy(executable);
    }
    if (device != 0) {
      api.memFreeAsync(device, stream);
    }
    if (event != 0) {
      api.eventDestroy(event);
    }
    if (stream != 0) {
      api.streamSynchronize(stream);
      api.streamDestroy(stream);
    }
    if (host != 0) {
      api.memFreeHost(host);
    }
    if (module != 0) {
      api.moduleUnload(module);
    }
  }
}
