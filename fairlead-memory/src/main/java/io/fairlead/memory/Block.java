package io.fairlead.memory;

/**
 * Memory that a {@link Pool} hands out: paid for by {@code charge}, and used before up to {@code
 * frontier}, which its next uses come after.
 */
record Block(long address, Frontier frontier, Charge charge) {}
