package io.fairlead.ffi.mpi;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;

/**
 * Live requests side by side in memory, as MPI wants them to try all at once, each with what it
 * stands for. The last takes the place of one that ended, so there are no holes. Grows, never
 * shrinks; what it grows to is bounded by who posts.
 *
 * <p>Threads: one at a time.
 *
 * @param <T> what a request stands for
 */
final class Requests<T> {
  private static final int FIRST_SIZE = 64;

  private final MpiLibrary library;
  private final MpiFlavour flavour;
  private final MemorySegment done = room(1, Integer.BYTES);
  private MemorySegment handles;
  private MemorySegment indices;
  private MemorySegment statuses;
  private @Nullable T[] live;
  private int count;

  /** What the last test found ended, in the order of the statuses. */
  private @Nullable T[] ended;

  private int answer;

  /** {@code array} makes arrays of what the requests stand for. */
  Requests(MpiLibrary library, IntFunction<@Nullable T[]> array) {
    this.library = library;
    this.flavour = library.flavour;
    this.live = array.apply(FIRST_SIZE);
    this.ended = array.apply(FIRST_SIZE);
    this.handles = room(FIRST_SIZE, flavour.handleBytes);
    this.indices = room(FIRST_SIZE, Integer.BYTES);
    this.statuses = room(FIRST_SIZE, flavour.statusBytes);
  }

  private static MemorySegment room(int count, int each) {
    return Arena.ofAuto().allocate((long) count * each, Long.BYTES);
  }

  int count() {
    return count;
  }

  /** Where MPI shall write the handle of the next request. */
  long nextAddress() {
    if (count == live.length) {
      grow();
    }
    return handles.address() + (long) count * flavour.handleBytes;
  }

  private void grow() {
    int size = 2 * count;
    live = Arrays.copyOf(live, size);
    ended = Arrays.copyOf(ended, size);
    handles = room(size, flavour.handleBytes).copyFrom(handles);
    indices = room(size, Integer.BYTES);
    statuses = room(size, flavour.statusBytes).copyFrom(statuses); // somebody may be reading them
  }

  /** MPI has written the handle. */
  void add(T each) {
    live[count++] = each;
  }

  /**
   * Tries all of them.
   *
   * @return how many ended; -1: it could not be tried, and {@link #answer} says why
   */
  int test() {
    answer =
        library.api.testsome(
            count, handles.address(), done.address(), indices.address(), statuses.address());
    if (answer != 0 && answer != flavour.errorInStatus) {
      return -1;
    }
    int number = done.get(JAVA_INT, 0);
    if (number <= 0) {
      return 0; // none ended, or none is live, for which MPI has a number below zero
    }
    for (int i = 0; i < number; i++) {
      int index = indices.getAtIndex(JAVA_INT, i);
      ended[i] = live[index];
      live[index] = null;
    }
    for (int i = 0; i < number; i++) {
      fill(indices.getAtIndex(JAVA_INT, i));
    }
    return number;
  }

  private void fill(int hole) {
    while (count > 0 && live[count - 1] == null) {
      count--;
    }
    if (hole < count) {
      count--;
      live[hole] = live[count];
      live[count] = null;
      flavour.setHandle(handles, hole, flavour.handle(handles, count));
    }
  }

  /** What the call answered. */
  int answer() {
    return answer;
  }

  /** What the {@code i}-th that ended stood for. Until the next test. */
  T ended(int i) {
    return Objects.requireNonNull(ended[i]);
  }

  /** MPI's error code for the {@code i}-th that ended; 0: none. */
  int error(int i) {
    return answer == 0 ? 0 : flavour.error(statuses, (long) i * flavour.statusBytes);
  }

  /** How many bytes the {@code i}-th that ended received. */
  long bytes(int i) {
    return flavour.count(statuses, (long) i * flavour.statusBytes);
  }

  /** Forgets the first so many that ended. */
  void forget(int number) {
    Arrays.fill(ended, 0, number, null);
  }
}
