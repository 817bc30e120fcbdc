package io.fairlead.cli.join;

/**
 * Where a key goes: the upper bits of its hash choose the partition, those below the slot of the
 * partition's table. {@code join.cu} has the same.
 */
final class KeyHash {
  private static final long FIRST = 0xFF51_AFD7_ED55_8CCDL;
  private static final long SECOND = 0xC4CE_B9FE_1A85_EC53L;

  private KeyHash() {}

  /** The finalizer of MurmurHash3: a bijection, so different keys have different hashes. */
  static long of(long key) {
    long first = (key ^ (key >>> 33)) * FIRST;
    long second = (first ^ (first >>> 33)) * SECOND;
    return second ^ (second >>> 33);
  }

  /** One of {@code 2^bits}. */
  static int partition(long hash, int bits) {
    return bits == 0 ? 0 : (int) (hash >>> (Long.SIZE - bits));
  }

  /** One of {@code capacity} slots, in a partition of {@code 2^bits}. */
  static long slot(long hash, int bits, long capacity) {
    return Math.unsignedMultiplyHigh(hash << bits, capacity);
  }
}
