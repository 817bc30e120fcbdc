/**
 * Contract suites for drivers and transports; the place of a simulated world that one seed replays,
 * which this version does not have.
 *
 * <p>Receives implementations of the SPIs. Hands verdicts: each contract kept or broken.
 */
@NullMarked
package io.fairlead.sim;

import org.jspecify.annotations.NullMarked;
