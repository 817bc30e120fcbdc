/**
 * The solver's mathematics on plain arrays: no task, device or message is seen from here.
 *
 * <p>Step: a matrix becomes a {@link io.fairlead.solver.internal.Hierarchy} of multigrid levels and
 * then the {@link io.fairlead.solver.internal.LocalMatrix local parts} of each rank. It receives
 * matrices from {@code io.fairlead.solver} and a {@link io.fairlead.solver.internal.Parallel} hook
 * from whoever owns the threads, and hands levels, blocks of rows and halo lists to the device
 * solve. Every result is the same bit for bit on any number of threads.
 */
@NullMarked
package io.fairlead.solver.internal;

import org.jspecify.annotations.NullMarked;
