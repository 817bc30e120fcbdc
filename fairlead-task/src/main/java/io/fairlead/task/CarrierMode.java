package io.fairlead.task;

import java.util.List;
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
   * In what the modes differ, in words for a person. {@code fairlead doctor} prints it, and the
   * table in docs/guide/carriers.md is compared with it.
   */
  private static final List<Difference> DIFFERENCES =
      List.of(
          new Difference(
              "What it needs",
              "java.lang opened to Fairlead: --add-opens, or -javaagent",
              "nothing: public API only"),
          new Difference(
              "Who looks for finished work that has no owner",
              "the carrier that went idle last; busy ones every 61 turns or 50 us, and at forks; a"
                  + " watcher if nobody has looked for 100 us",
              "one poller thread"),
          new Difference(
              "What it costs to wake a task",
              "a place in a queue if the waker waits next, or if a carrier found the work finished;"
                  + " else a carrier is woken if all sleep",
              "a place in a queue, and a carrier is woken if all sleep; what the poller finds always"
                  + " crosses threads"),
          new Difference(
              "When tasks keep all carriers busy",
              "a spare carrier comes once ready work has waited for 200 us",
              "ready work waits until one of them suspends"),
          new Difference(
              "Placement INITIAL",
              "a virtual thread on the carrier that first ran it, which others share",
              "a platform thread of its own"),
          new Difference(
              "Placement Bound", "the owner's platform thread", "the owner's platform thread"),
          new Difference(
              "Owner.affine: tasks on an owner's thread that may wait",
              "run there, between the owner's commands",
              "refused, with the flag to pass"),
          new Difference(
              "When a strand or a family gives up its turn",
              "whenever the task that has it suspends",
              "in waits of Fairlead only: not in locks, sleep, sockets"));

  /**
   * One thing in which the modes differ.
   *
   * @param what what is compared
   * @param own how it is on own carriers
   * @param jdk how it is on the JDK's
   */
  public record Difference(String what, String own, String jdk) {}

  /** In what the modes differ: what each gives, for a person to choose by. */
  public static List<Difference> differences() {
    return DIFFERENCES;
  }

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
