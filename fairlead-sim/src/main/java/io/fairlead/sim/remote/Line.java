package io.fairlead.sim.remote;

import io.fairlead.comm.spi.TransportException;
import io.fairlead.comm.spi.TransportException.Reason;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.Socket;
import org.jspecify.annotations.Nullable;

/**
 * A connection between the suite and one rank: words, numbers and pieces of memory. One thread at a
 * time. What fails in it fails the test: {@link UncheckedIOException}.
 */
final class Line {
  /** A test's rank answers at once; one that is silent for so long has hung. */
  private static final int SILENCE_MILLIS_MAX = 40_000;

  /** In place of a length: memory that is there no more. */
  private static final int GONE = -2;

  private final Socket socket;
  private final DataInputStream in;
  private final DataOutputStream out;

  Line(Socket socket) throws IOException {
    this.socket = socket;
    socket.setTcpNoDelay(true);
    this.in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
    this.out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
  }

  void limitSilence() {
    try {
      socket.setSoTimeout(SILENCE_MILLIS_MAX);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Whether something has come, so that reading it will not wait. */
  boolean hasInput() {
    try {
      return in.available() > 0;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  void flush() {
    try {
      out.flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  void close() {
    try {
      socket.close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  // --- writing ----------------------------------------------------------------------------------

  Line say(Word word) {
    return text(word.name());
  }

  Line number(int number) {
    try {
      out.writeInt(number);
      return this;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  Line longNumber(long number) {
    try {
      out.writeLong(number);
      return this;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  Line flag(boolean flag) {
    return number(flag ? 1 : 0);
  }

  Line text(String text) {
    try {
      out.writeUTF(text);
      return this;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The bytes; or, of memory whose arena is closed, only how many there were. */
  Line memory(MemorySegment memory) {
    if (!memory.scope().isAlive()) {
      return number(GONE).number((int) memory.byteSize());
    }
    byte[] bytes = memory.toArray(ValueLayout.JAVA_BYTE);
    try {
      out.writeInt(bytes.length);
      out.write(bytes);
      return this;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  Line memories(MemorySegment[] memories) {
    number(memories.length);
    for (MemorySegment each : memories) {
      memory(each);
    }
    return this;
  }

  Line failure(TransportException failure) {
    text(failure.reason().name()).text(String.valueOf(failure.getMessage()));
    Throwable cause = failure.getCause();
    flag(cause != null);
    if (cause != null) {
      text(cause.getClass().getName()).text(String.valueOf(cause.getMessage()));
    }
    return this;
  }

  // --- reading ----------------------------------------------------------------------------------

  Word word() {
    return Word.valueOf(text());
  }

  int number() {
    try {
      return in.readInt();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  long longNumber() {
    try {
      return in.readLong();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  boolean flag() {
    return number() != 0;
  }

  String text() {
    try {
      return in.readUTF();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** As it was written; memory that was gone there is gone here. */
  MemorySegment memory() {
    int length = number();
    if (length == GONE) {
      try (Arena arena = Arena.ofShared()) {
        return arena.allocate(number());
      }
    }
    byte[] bytes = new byte[length];
    try {
      in.readFully(bytes);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return MemorySegment.ofArray(bytes);
  }

  MemorySegment[] memories() {
    MemorySegment[] memories = new MemorySegment[number()];
    for (int i = 0; i < memories.length; i++) {
      memories[i] = memory();
    }
    return memories;
  }

  /** The same failure, with a cause of the same class where it is one that suites use. */
  TransportException failure() {
    Reason reason = Reason.valueOf(text());
    String message = text();
    return new TransportException(reason, message, flag() ? cause(text(), text()) : null);
  }

  private static @Nullable Throwable cause(String type, String message) {
    return type.equals(IllegalStateException.class.getName())
        ? new IllegalStateException(message)
        : new RemoteFailure(type, message);
  }

  /** A failure in another process, of a class that is not made again here. */
  static final class RemoteFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    RemoteFailure(String type, String message) {
      super(type + ": " + message);
    }
  }
}
