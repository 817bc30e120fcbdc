package io.fairlead.task;

/**
 * A snapshot of an engine; the figures are read one after another.
 *
 * @param calls bodies that were begun
 * @param failures bodies that threw, and instances that could not be made
 * @param refusals calls refused because the queue was full, and tryCalls that got nothing
 * @param instances instances that exist
 * @param busy instances in a call or still behind its release gate
 * @param waiting calls that wait for an instance
 */
public record EngineStats(
    long calls, long failures, long refusals, int instances, int busy, int waiting) {}
