/**
 * Files that results go to.
 *
 * <p>Step: the last. It receives a name and what is to be written from {@code io.fairlead.solver}
 * and from the command, and hands over a file that is there whole or not at all.
 */
@NullMarked
package io.fairlead.solver.internal.file;

import org.jspecify.annotations.NullMarked;
