package io.fairlead.device;

import java.util.Arrays;

/**
 * Positions in streams, the highest one for each: a vector clock. Immutable, so that one may be
 * published with one volatile write and shared without copying.
 *
 * <p>Entries are sorted by stream id. A position whose work is known to have ended orders nothing
 * any more and is dropped when a clock grows; so a clock never has more entries than there are
 * streams with unfinished work.
 */
final class Clock {
  static final Clock NONE = new Clock(new StreamCore[0], new long[0]);

  private final StreamCore[] streams;
  private final long[] sequences;

  private Clock(StreamCore[] streams, long[] sequences) {
    this.streams = streams;
    this.sequences = sequences;
  }

  /** Whether this clock is at or past that position. */
  boolean covers(StreamCore stream, long sequence) {
    for (int i = 0; i < streams.length; i++) {
      if (streams[i] == stream) {
        return sequences[i] >= sequence;
      }
    }
    return false;
  }

  boolean isEmpty() {
    return streams.length == 0;
  }

  int size() {
    return streams.length;
  }

  StreamCore stream(int index) {
    return streams[index];
  }

  long sequence(int index) {
    return sequences[index];
  }

  /** This clock, at least at that position. */
  Clock with(StreamCore stream, long sequence) {
    if (covers(stream, sequence)) {
      return this;
    }
    return join(new Clock(new StreamCore[] {stream}, new long[] {sequence}));
  }

  /** For each stream the higher position of the two. */
  Clock join(Clock other) {
    if (other.isEmpty() || other == this) {
      return this;
    }
    if (isEmpty()) {
      return other;
    }
    return merge(other);
  }

  private Clock merge(Clock other) {
    StreamCore[] mergedStreams = new StreamCore[streams.length + other.streams.length];
    long[] mergedSequences = new long[mergedStreams.length];
    int mine = 0;
    int theirs = 0;
    int size = 0;
    while (mine < streams.length || theirs < other.streams.length) {
      int order = compare(other, mine, theirs);
      StreamCore stream = order <= 0 ? streams[mine] : other.streams[theirs];
      long sequence = 0;
      if (order <= 0) {
        sequence = sequences[mine++];
      }
      if (order >= 0) {
        sequence = Math.max(sequence, other.sequences[theirs++]);
      }
      if (!stream.isKnownReached(sequence)) {
        mergedStreams[size] = stream;
        mergedSequences[size++] = sequence;
      }
    }
    return new Clock(Arrays.copyOf(mergedStreams, size), Arrays.copyOf(mergedSequences, size));
  }

  /** Which of the two next entries comes first by stream id; an ended list comes last. */
  private int compare(Clock other, int mine, int theirs) {
    if (mine == streams.length) {
      return 1;
    }
    if (theirs == other.streams.length) {
      return -1;
    }
    return Long.compare(streams[mine].id, other.streams[theirs].id);
  }

  @Override
  public String toString() {
    StringBuilder text = new StringBuilder("[");
    for (int i = 0; i < streams.length; i++) {
      text.append(i == 0 ? "" : ", ").append(streams[i].id).append(':').append(sequences[i]);
    }
    return text.append(']').toString();
  }
}
