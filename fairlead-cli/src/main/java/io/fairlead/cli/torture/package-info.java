/**
 * {@code fairlead torture}: everything that Fairlead does with a device's memory, at once, on
 * little of it, with what it needs failing now and then, from a seed, until something is wrong.
 *
 * <p>Receives a seed, a time, and which device. Hands back what was done, or what was wrong. A
 * {@link io.fairlead.cli.torture.Round} is one seed on a freshly opened device; an {@link
 * io.fairlead.cli.torture.Actor} is one of its tasks.
 */
@NullMarked
package io.fairlead.cli.torture;

import org.jspecify.annotations.NullMarked;
