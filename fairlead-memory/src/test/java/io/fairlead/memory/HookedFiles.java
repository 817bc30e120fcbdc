package io.fairlead.memory;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/** Other files, and a hook before each call, which may wait or throw. */
record HookedFiles(DiskFiles files, Hook hook) implements DiskFiles {
  /**
   * Before "buffer" (of no file), "create", "reopen", "open", "rename", "size", "delete", "write",
   * "read", "force", "close".
   */
  interface Hook {
    void before(String call, Path file) throws IOException;
  }

  @Override
  public int alignment() {
    return files.alignment();
  }

  @Override
  public MemorySegment buffer(long bytes, long alignedTo) {
    try {
      hook.before("buffer", Path.of(""));
    } catch (IOException never) {
      throw new UncheckedIOException(never);
    }
    return files.buffer(bytes, alignedTo);
  }

  @Override
  public OpenFile create(Path file) throws IOException {
    hook.before("create", file);
    return new Hooked(files.create(file), file, hook);
  }

  @Override
  public OpenFile reopen(Path file) throws IOException {
    hook.before("reopen", file);
    return new Hooked(files.reopen(file), file, hook);
  }

  @Override
  public OpenFile open(Path file) throws IOException {
    hook.before("open", file);
    return new Hooked(files.open(file), file, hook);
  }

  @Override
  public void rename(Path from, Path to) throws IOException {
    hook.before("rename", from);
    files.rename(from, to);
  }

  @Override
  public long size(Path file) throws IOException {
    hook.before("size", file);
    return files.size(file);
  }

  @Override
  public boolean delete(Path file) throws IOException {
    hook.before("delete", file);
    return files.delete(file);
  }

  @Override
  public long usableBytes(Path directory) throws IOException {
    return files.usableBytes(directory);
  }

  private record Hooked(OpenFile open, Path file, Hook hook) implements OpenFile {
    @Override
    public int write(ByteBuffer source, long position) throws IOException {
      hook.before("write", file);
      return open.write(source, position);
    }

    @Override
    public int read(ByteBuffer target, long position) throws IOException {
      hook.before("read", file);
      return open.read(target, position);
    }

    @Override
    public void force() throws IOException {
      hook.before("force", file);
      open.force();
    }

    @Override
    public void close() throws IOException {
      hook.before("close", file);
      open.close();
    }
  }
}
