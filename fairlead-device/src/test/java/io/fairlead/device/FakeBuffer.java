package io.fairlead.device;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;

/** An operand that writes down what happens to it. */
final class FakeBuffer implements Operand {
  private final long address;
  private final long bytes;
  private final List<String> story = new CopyOnWriteArrayList<>();
  private Consumer<DeviceStream> onAcquire = stream -> {};

  FakeBuffer(long address, long bytes) {
    this.address = address;
    this.bytes = bytes;
  }

  /** What happens, under the stream's turn, when an operation wants the buffer. */
  FakeBuffer onAcquire(Consumer<DeviceStream> action) {
    onAcquire = action;
    return this;
  }

  List<String> story() {
    return List.copyOf(story);
  }

  @Override
  public long bytes() {
    return bytes;
  }

  @Override
  public long order() {
    return address;
  }

  @Override
  public long hold(DeviceContext context, Object graph) {
    story.add("hold");
    return address;
  }

  @Override
  public void letGo(Object graph) {
    story.add("let go");
  }

  @Override
  public long acquire(DeviceStream stream, Access access) {
    onAcquire.accept(stream);
    story.add("acquire " + access);
    return address;
  }

  @Override
  public void recorded(DeviceStream stream, long sequence, Access access) {
    story.add("recorded " + access + " " + sequence);
  }

  @Override
  public void abandoned(DeviceStream stream, Access access) {
    story.add("abandoned " + access);
  }
}
