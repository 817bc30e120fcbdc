/**
 * The solve on devices and ranks. Step: everything from stream to message, as a user of the path.
 *
 * <p>Receives a {@link io.fairlead.solver.internal.Hierarchy} from the setup on the CPU and cuts it
 * into a {@link io.fairlead.solver.internal.device.RankPart} for each rank, which lies on the
 * rank's device and serves all solves. A solve runs as one task for each rank: {@link
 * io.fairlead.solver.internal.device.ConjugateGradients} enqueues kernels on the task's stream and
 * exchanges ghosts and sums with the other ranks. It hands the solution to {@link
 * io.fairlead.solver.SparseSolver}.
 */
@NullMarked
package io.fairlead.solver.internal.device;

import org.jspecify.annotations.NullMarked;
