package io.fairlead.fault;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Puts a known bug back, so that tests can show that they would find it. Test only.
 *
 * <p>Costs nothing in production: unless the system property {@code fairlead.mutants} is {@code
 * true} when this class is initialised, {@link #on} is constantly false and folds away.
 *
 * <p>Ids are {@code noun.bug} (for example {@code owner.no-recheck-before-park}). Each has a test
 * that fails while it is on.
 */
public final class Mutant {
  private static final boolean AVAILABLE = Boolean.getBoolean("fairlead.mutants");
  private static final Set<String> ON = ConcurrentHashMap.newKeySet();

  private Mutant() {}

  /** Whether this process can switch mutants on at all. */
  public static boolean available() {
    return AVAILABLE;
  }

  /** Whether the bug is in. Any thread; never blocks. */
  public static boolean on(String id) {
    return AVAILABLE && ON.contains(id);
  }

  /**
   * Puts the bug in, for the whole process, until the result is closed.
   *
   * @throws IllegalStateException unless the process was started with {@code
   *     -Dfairlead.mutants=true}
   */
  public static Handle enable(String id) {
    if (!AVAILABLE) {
      throw new IllegalStateException(
          "mutants are off: start the test JVM with -Dfairlead.mutants=true");
    }
    ON.add(id);
    return () -> ON.remove(id);
  }

  /** Takes the bug out again; closing twice is harmless. */
  public interface Handle extends AutoCloseable {
    @Override
    void close();
  }
}
