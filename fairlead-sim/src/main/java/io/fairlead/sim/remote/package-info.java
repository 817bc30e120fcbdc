/**
 * Ranks in other processes, driven by a suite that was written for one: each process serves its
 * transport to the suite's, where it looks like any other.
 *
 * <p>Receives calls on a transport from a contract suite. Hands them to the transport of another
 * process, and back what became of them.
 */
@NullMarked
package io.fairlead.sim.remote;

import org.jspecify.annotations.NullMarked;
