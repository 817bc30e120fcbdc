package io.fairlead.task;

import java.util.List;

/**
 * Whose threads run the tasks of a runtime, and what they have done so far. A snapshot.
 *
 * @param mode the mode that is on
 * @param why in words, for a person
 * @param flag what to pass to {@code java} so that own carriers can be used
 * @param carriers own carriers; 0 in JDK mode
 * @param spares spare carriers that work now, in place of others that are stuck
 * @param wakes how often a sleeping carrier was woken
 * @param owners owners of the runtime on which a task is mounted just now, and since when
 */
public record CarrierReport(
    CarrierMode mode,
    String why,
    String flag,
    int carriers,
    int spares,
    long wakes,
    List<Mounted> owners) {

  public CarrierReport {
    owners = List.copyOf(owners);
  }

  /**
   * A task that an owner's thread runs just now. Nothing else runs there until it suspends: one
   * that blocks there holds up the owner.
   *
   * @param owner the owner's name
   * @param nanos for how long
   */
  public record Mounted(String owner, long nanos) {}
}
