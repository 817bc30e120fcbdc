/**
 * The sparse solver: the first user of the path from task to message.
 *
 * <p>Step: a linear system, from a file or from the caller, becomes a solution. It receives {@link
 * io.fairlead.solver.CsrMatrix matrices} and right-hand sides from {@link
 * io.fairlead.solver.MatrixMarket files} or from the caller, and hands rows, halo lists and
 * multigrid levels to the device solve.
 */
@NullMarked
package io.fairlead.solver;

import org.jspecify.annotations.NullMarked;
