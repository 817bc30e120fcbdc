/**
 * What the C library of this process has beyond Java: its environment, and memory by pages; and
 * what all calls of native functions share.
 *
 * <p>Receives names and values from {@code io.fairlead.ffi}'s other packages. Hands them to the C
 * library.
 */
@NullMarked
package io.fairlead.ffi.posix;

import org.jspecify.annotations.NullMarked;
