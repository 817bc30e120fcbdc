/**
 * The workshop: benchmarks (named {@code XBench}) and race tests ({@code XRaceTest}).
 *
 * <p>Receives every other module. Hands numbers and verdicts to whoever decides. Never published.
 */
@NullMarked
package io.fairlead.lab;

import org.jspecify.annotations.NullMarked;
