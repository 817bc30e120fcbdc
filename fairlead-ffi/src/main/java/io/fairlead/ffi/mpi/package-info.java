/**
 * MPI through {@code java.lang.foreign}: the library and its flavour, the process's one start and
 * one end of it, and packets and memory between ranks.
 *
 * <p>Receives packets and transfers from {@code io.fairlead.comm.wire}. Hands them to MPI, and what
 * MPI says back.
 */
@NullMarked
package io.fairlead.ffi.mpi;

import org.jspecify.annotations.NullMarked;
