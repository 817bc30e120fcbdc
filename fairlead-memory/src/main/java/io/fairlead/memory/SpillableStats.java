package io.fairlead.memory;

/**
 * What became of asking one {@link Spillable}.
 *
 * @param calls how often it was asked
 * @param freedBytes what it says that it has freed
 * @param failures how often it threw
 * @param late how often it had not returned when others were asked instead
 */
public record SpillableStats(long calls, long freedBytes, long failures, long late) {}
