package io.fairlead.task;

import java.util.Locale;

/** Whose threads run the tasks of a runtime ({@code fairlead.carriers}). */
public enum CarrierMode {
  /**
   * Fairlead's: they poll completions themselves and run tasks on owners. They need the JDK's
   * package {@code java.lang} opened; see {@link CarrierReport#flag}.
   */
  OWN,
  /** The JDK's: public API only. A thread polls completions and wakes those who wait. */
  JDK;

  /**
   * The mode of this name.
   *
   * @throws IllegalArgumentException that names what it may be
   */
  static CarrierMode of(String name) {
    return switch (name.strip().toLowerCase(Locale.ROOT)) {
      case "own" -> OWN;
      case "jdk" -> JDK;
      default ->
          throw new IllegalArgumentException("carriers '" + name + "': use auto, own or jdk");
    };
  }
}
