package io.fairlead.memory;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Files in memory on a disk that fails in every way, from a seed. Some faults are told, by an
 * exception or by a count; others are silent. Beside what a file holds lies what it should hold, so
 * that a test knows exactly which reads must fail.
 *
 * <p>One thread at a time: for a tier that is stepped.
 */
class FaultyFiles implements DiskFiles {
  /** What a file holds, and what it should. */
  static final class Stored {
    byte[] real = new byte[0];
    byte[] right = new byte[0];

    boolean isRight() {
      return Arrays.equals(real, right);
    }

    boolean isRight(long from, long to) {
      return to <= real.length
          && Arrays.equals(real, (int) from, (int) to, right, (int) from, (int) to);
    }
  }

  final Map<Path, Stored> files = new LinkedHashMap<>();

  /** How many of each kind were put in. */
  final Map<String, Integer> injected = new LinkedHashMap<>();

  /** Told faults of this step that an operation must not survive. */
  final List<String> fatal = new ArrayList<>();

  private final Random random;
  private final int alignment;

  /** One call in so many goes wrong; 0 for none. */
  int oneIn;

  /** All that may lie on it. */
  long capacity = Long.MAX_VALUE;

  int open;

  FaultyFiles(Random random, int alignment, int oneIn) {
    this.random = random;
    this.alignment = alignment;
    this.oneIn = oneIn;
  }

  @Override
  public int alignment() {
    return alignment;
  }

  private boolean strikes() {
    return oneIn > 0 && random.nextInt(oneIn) == 0;
  }

  void count(String kind) {
    injected.merge(kind, 1, Integer::sum);
  }

  private IOException fatal(String kind, IOException failure) {
    count(kind);
    fatal.add(kind);
    return failure;
  }

  private IOException writeFault(String call, Path file) {
    return switch (random.nextInt(5)) {
      case 0 -> fatal(call + " full", new IOException("No space left on device"));
      case 1 -> fatal(call + " quota", new IOException("Disk quota exceeded"));
      case 2 ->
          fatal(
              call + " read-only",
              new FileSystemException(file.toString(), null, "Read-only file system"));
      case 3 -> fatal(call + " denied", new AccessDeniedException(file.toString()));
      default -> fatal(call + " error", new IOException("Input/output error"));
    };
  }

  private Stored stored(Path file) throws NoSuchFileException {
    Stored found = files.get(file);
    if (found == null) {
      throw new NoSuchFileException(file.toString());
    }
    return found;
  }

  private long used() {
    return files.values().stream().mapToLong(file -> file.right.length).sum();
  }

  @Override
  public OpenFile create(Path file) throws IOException {
    if (strikes()) {
      throw writeFault("create", file);
    }
    if (files.containsKey(file)) {
      throw new FileAlreadyExistsException(file.toString());
    }
    Stored made = new Stored();
    files.put(file, made);
    return new Open(file, made, true);
  }

  @Override
  public OpenFile reopen(Path file) throws IOException {
    if (strikes()) {
      throw writeFault("reopen", file);
    }
    return new Open(file, stored(file), true);
  }

  @Override
  public OpenFile open(Path file) throws IOException {
    if (strikes()) {
      throw random.nextBoolean()
          ? fatal("open gone", new NoSuchFileException(file.toString()))
          : fatal("open error", new IOException("Input/output error"));
    }
    return new Open(file, stored(file), false);
  }

  @Override
  public void rename(Path from, Path to) throws IOException {
    boolean strikes = strikes();
    if (strikes && random.nextBoolean()) {
      throw writeFault("rename", from);
    }
    files.put(to, stored(from));
    files.remove(from);
    if (strikes) {
      throw fatal("rename done, error", new IOException("Input/output error"));
    }
  }

  @Override
  public long size(Path file) throws IOException {
    if (strikes()) {
      throw fatal("size error", new IOException("Input/output error"));
    }
    return stored(file).real.length;
  }

  @Override
  public boolean delete(Path file) throws IOException {
    if (files.containsKey(file) && strikes()) {
      count("delete error"); // harms no operation
      throw new IOException("Input/output error");
    }
    return files.remove(file) != null;
  }

  @Override
  public long usableBytes(Path directory) {
    return capacity - used();
  }

  /** Something happens to a file that nobody has open; false if there is nothing to harm. */
  boolean decay(List<Path> images) {
    List<Path> there = images.stream().filter(files::containsKey).toList();
    if (there.isEmpty()) {
      return false;
    }
    Stored one = files.get(there.get(random.nextInt(there.size())));
    Stored other = files.get(there.get(random.nextInt(there.size())));
    if (!one.isRight() || !other.isRight() || one.real.length == 0) {
      return false;
    }
    switch (random.nextInt(6)) {
      case 0 -> {
        one.real[random.nextInt(one.real.length)] ^= (byte) (1 << random.nextInt(8));
        count("decay bit");
      }
      case 1 -> {
        one.real = Arrays.copyOf(one.real, random.nextInt(one.real.length));
        count("decay cut short");
      }
      case 2 -> {
        int unit = DiskFormat.UNIT;
        int from = unit * random.nextInt(one.real.length / unit);
        int to = unit * random.nextInt(one.real.length / unit);
        byte[] kept = Arrays.copyOfRange(one.real, to, to + unit);
        System.arraycopy(one.real, from, one.real, to, unit);
        System.arraycopy(kept, 0, one.real, from, unit);
        countIfWrong(one, "decay chunks swapped");
      }
      case 3 -> {
        one.real = other.real.clone();
        countIfWrong(one, "decay another image or generation");
      }
      case 4 -> {
        byte[] kept = one.real;
        one.real = other.real;
        other.real = kept;
        countIfWrong(one, "decay images exchanged");
      }
      default -> {
        int unit = DiskFormat.UNIT;
        int last = Math.min(one.real.length, other.real.length) / unit;
        int at = unit * random.nextInt(last);
        System.arraycopy(other.real, at, one.real, at, unit);
        countIfWrong(one, "decay chunk of another image or generation");
      }
    }
    return true;
  }

  private void countIfWrong(Stored file, String kind) {
    if (!file.isRight()) {
      count(kind);
    }
  }

  private final class Open implements OpenFile {
    private final Path file;
    private final Stored stored;
    private final boolean written;
    private boolean closed;
    private long stalledAt = -1;
    private int stalls;

    Open(Path file, Stored stored, boolean written) {
      this.written = written;
      this.file = file;
      this.stored = stored;
      open++;
    }

    @Override
    public int write(ByteBuffer source, long position) throws IOException {
      requireAligned(source, position);
      int length = source.remaining();
      byte[] bytes = new byte[length];
      source.get(bytes);
      if (used() + Math.max(0, position + length - stored.right.length) > capacity) {
        fatal.add("write really full"); // not counted: there may be very many
        throw new IOException("No space left on device");
      }
      if (!strikes()) {
        stored.right = with(stored.right, bytes, position, length);
        stored.real = with(stored.real, bytes, position, length);
        return length;
      }
      return switch (random.nextInt(6)) {
        case 0 -> {
          int part = random.nextInt(length);
          count(part == 0 ? "write nothing" : "write short");
          stored.right = with(stored.right, bytes, position, part);
          stored.real = with(stored.real, bytes, position, part);
          yield part;
        }
        case 1 -> {
          count("write silent: a bit");
          stored.right = with(stored.right, bytes, position, length);
          bytes[random.nextInt(length)] ^= (byte) (1 << random.nextInt(8));
          stored.real = with(stored.real, bytes, position, length);
          yield length;
        }
        case 2 -> {
          stored.right = with(stored.right, bytes, position, length);
          stored.real = with(stored.real, bytes, position, random.nextInt(length));
          countIfWrong(stored, "write silent: torn");
          yield length;
        }
        case 3 -> {
          stored.right = with(stored.right, bytes, position, length);
          long elsewhere = Math.max(0, position - DiskFormat.UNIT);
          stored.real = with(stored.real, bytes, elsewhere, length);
          countIfWrong(stored, "write silent: elsewhere");
          yield length;
        }
        default -> throw writeFault("write", file);
      };
    }

    private static byte[] with(byte[] before, byte[] bytes, long position, int length) {
      int end = (int) position + length;
      byte[] after =
          length > 0 && end > before.length ? Arrays.copyOf(before, end) : before.clone();
      System.arraycopy(bytes, 0, after, (int) position, length);
      return after;
    }

    @Override
    public int read(ByteBuffer target, long position) throws IOException {
      requireAligned(target, position);
      int length = Math.min(target.remaining(), stored.real.length - (int) position);
      if (length <= 0) {
        return -1;
      }
      if (!strikes()) {
        target.put(stored.real, (int) position, length);
        return length;
      }
      return switch (random.nextInt(4)) {
        case 0 -> {
          int part = random.nextInt(length);
          count(part == 0 ? "read nothing" : "read short");
          target.put(stored.real, (int) position, part);
          if (part < alignment) {
            stall(position);
          }
          yield part;
        }
        case 1 -> {
          byte[] bytes = Arrays.copyOfRange(stored.real, (int) position, (int) position + length);
          bytes[random.nextInt(length)] ^= (byte) (1 << random.nextInt(8));
          target.put(bytes);
          count("read silent: a bit");
          fatal.add("read silent: a bit"); // the checksum is to find it
          yield length;
        }
        case 2 -> {
          count("read end too early");
          fatal.add("read end too early");
          yield -1;
        }
        default -> throw fatal("read error", new IOException("Input/output error"));
      };
    }

    /** Less than can be gone on from: again and again at one place, and there is no more. */
    private void stall(long position) {
      stalls = stalledAt == position ? stalls + 1 : 1;
      stalledAt = position;
      if (stalls >= DiskTransfer.STALLS_MAX) {
        fatal.add("read short, again and again");
      }
    }

    private void requireAligned(ByteBuffer buffer, long position) throws IOException {
      long address = MemorySegment.ofBuffer(buffer).address();
      if (address % alignment != 0
          || position % alignment != 0
          || buffer.remaining() % alignment != 0) {
        throw new IOException("Invalid argument");
      }
    }

    @Override
    public void force() throws IOException {
      if (strikes()) {
        throw writeFault("force", file);
      }
    }

    @Override
    public void close() throws IOException {
      if (closed) {
        return;
      }
      closed = true;
      open--;
      if (strikes() && written) {
        throw writeFault("close", file);
      }
    }
  }
}
