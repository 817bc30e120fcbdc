/**
 * CUDA, MPI and UCX through {@code java.lang.foreign}; the only package with native access.
 *
 * <p>Receives driver calls and transport calls by the two SPIs. Hands native status, told as the
 * SPIs tell it.
 */
@NullMarked
package io.fairlead.ffi;

import org.jspecify.annotations.NullMarked;
