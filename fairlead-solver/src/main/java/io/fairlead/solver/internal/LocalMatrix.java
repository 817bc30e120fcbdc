package io.fairlead.solver.internal;

import io.fairlead.solver.CsrMatrix;
import java.util.Arrays;

/**
 * One rank's rows of a distributed matrix, and what its product with a vector takes from other
 * ranks.
 *
 * <p>Local columns are the rank's own block of the vector, then the ghosts: copies of other ranks'
 * entries, by owner and then by global column. Entries within a row keep the order of the global
 * columns, so a row's sum is the same bit for bit on any number of ranks; the local columns of a
 * row are therefore not ascending.
 *
 * <pre>
 *   for each n in sends:    send  x[send[k]], k in sendPtr[n] .. sendPtr[n+1], to sendRanks[n]
 *   for each n in receives: receive x[owned + k], k in receivePtr[n] .. receivePtr[n+1],
 *                           from receiveRanks[n]
 *   y = matrix · x
 * </pre>
 *
 * @param matrix the local rows, with {@code owned + ghosts.length} columns
 * @param owned the vector entries that the rank owns, first in {@code x}
 * @param ghosts the global column of each ghost
 * @param receiveRanks the owners of ghosts, ascending
 * @param receivePtr the ghosts of each, as a range
 * @param sendRanks the ranks that hold ghosts of this rank's entries, ascending
 * @param sendPtr the range of {@code send} for each
 * @param send the owned local columns to send, in the order in which the receiver keeps its ghosts
 */
@SuppressWarnings("ArrayRecordComponent") // shared, never compared
public record LocalMatrix(
    CsrMatrix matrix,
    int owned,
    int[] ghosts,
    int[] receiveRanks,
    int[] receivePtr,
    int[] sendRanks,
    int[] sendPtr,
    int[] send) {

  /**
   * Returns one rank's part; {@link #splitAll} is cheaper when one process holds several ranks.
   *
   * @param rows who owns the rows
   * @param cols who owns the entries of the vector that the matrix is multiplied with
   */
  public static LocalMatrix split(CsrMatrix a, RowPartition rows, RowPartition cols, int rank) {
    return part(a, rows, cols, rank, allGhosts(a, rows, cols));
  }

  /** Returns every rank's part. */
  public static LocalMatrix[] splitAll(CsrMatrix a, RowPartition rows, RowPartition cols) {
    int[][] ghosts = allGhosts(a, rows, cols);
    LocalMatrix[] parts = new LocalMatrix[rows.ranks()];
    for (int rank = 0; rank < parts.length; rank++) {
      parts[rank] = part(a, rows, cols, rank, ghosts);
    }
    return parts;
  }

  private static int[][] allGhosts(CsrMatrix a, RowPartition rows, RowPartition cols) {
    requireFit(a, rows, cols);
    int[] lastSeenBy = new int[a.cols()];
    Arrays.fill(lastSeenBy, -1);
    int[][] ghosts = new int[rows.ranks()][];
    for (int rank = 0; rank < ghosts.length; rank++) {
      ghosts[rank] = ghostsOf(a, rows, cols, rank, lastSeenBy);
    }
    return ghosts;
  }

  private static void requireFit(CsrMatrix a, RowPartition rows, RowPartition cols) {
    if (rows.rows() != a.rows() || cols.rows() != a.cols() || rows.ranks() != cols.ranks()) {
      throw new IllegalArgumentException(a + " does not fit " + rows + " and " + cols);
    }
  }

  private static int[] ghostsOf(
      CsrMatrix a, RowPartition rows, RowPartition cols, int rank, int[] lastSeenBy) {
    int first = cols.first(rank);
    int end = cols.end(rank);
    int[] found = new int[16];
    int count = 0;
    int last = a.rowPtr()[rows.end(rank)];
    for (int k = a.rowPtr()[rows.first(rank)]; k < last; k++) {
      int col = a.colIdx()[k];
      if ((col < first || col >= end) && lastSeenBy[col] != rank) {
        lastSeenBy[col] = rank;
        found = count == found.length ? Arrays.copyOf(found, count * 2) : found;
        found[count++] = col;
      }
    }
    Arrays.sort(found, 0, count);
    return Arrays.copyOf(found, count);
  }

  private static LocalMatrix part(
      CsrMatrix a, RowPartition rows, RowPartition cols, int rank, int[][] ghosts) {
    int[] mine = ghosts[rank];
    int[] owners = new int[cols.ranks()];
    int[] ownerPtr = new int[cols.ranks() + 1];
    int receives = 0;
    for (int k = 0; k < mine.length; k++) {
      int owner = cols.owner(mine[k]);
      if (receives == 0 || owners[receives - 1] != owner) {
        owners[receives] = owner;
        ownerPtr[receives++] = k;
      }
    }
    ownerPtr[receives] = mine.length;
    Sends sends = new Sends(cols, rank, ghosts);
    return new LocalMatrix(
        localRows(a, rows, cols, rank, mine),
        cols.size(rank),
        mine,
        Arrays.copyOf(owners, receives),
        Arrays.copyOf(ownerPtr, receives + 1),
        Arrays.copyOf(sends.ranks, sends.count),
        Arrays.copyOf(sends.ptr, sends.count + 1),
        Arrays.copyOf(sends.columns, sends.ptr[sends.count]));
  }

  /** What a rank owns among the others' ghosts. */
  private static final class Sends {
    final int[] ranks;
    final int[] ptr;
    int[] columns = new int[16];
    int count;

    Sends(RowPartition cols, int rank, int[][] ghosts) {
      ranks = new int[ghosts.length];
      ptr = new int[ghosts.length + 1];
      for (int to = 0; to < ghosts.length; to++) {
        addAll(cols, rank, to, ghosts[to]);
      }
    }

    private void addAll(RowPartition cols, int rank, int to, int[] ghostsThere) {
      int from = lowerBound(ghostsThere, cols.first(rank));
      int end = lowerBound(ghostsThere, cols.end(rank));
      if (to == rank || from >= end) {
        return;
      }
      int start = ptr[count];
      columns = Arrays.copyOf(columns, Math.max(columns.length, start + end - from));
      for (int k = from; k < end; k++) {
        columns[start + k - from] = ghostsThere[k] - cols.first(rank);
      }
      ranks[count++] = to;
      ptr[count] = start + end - from;
    }

    private static int lowerBound(int[] ascending, int value) {
      int at = Arrays.binarySearch(ascending, value);
      return at < 0 ? -at - 1 : at;
    }
  }

  private static CsrMatrix localRows(
      CsrMatrix a, RowPartition rows, RowPartition cols, int rank, int[] ghosts) {
    int firstRow = rows.first(rank);
    int count = rows.size(rank);
    int offset = a.rowPtr()[firstRow];
    int[] ptr = new int[count + 1];
    for (int i = 0; i <= count; i++) {
      ptr[i] = a.rowPtr()[firstRow + i] - offset;
    }
    int[] idx = new int[ptr[count]];
    int first = cols.first(rank);
    int owned = cols.size(rank);
    for (int k = 0; k < idx.length; k++) {
      int local = a.colIdx()[offset + k] - first;
      boolean mine = local >= 0 && local < owned;
      idx[k] = mine ? local : owned + Arrays.binarySearch(ghosts, local + first);
    }
    double[] val = Arrays.copyOfRange(a.values(), offset, offset + ptr[count]);
    return new CsrMatrix(count, owned + ghosts.length, ptr, idx, val);
  }
}
