/**
 * The in-process transport: ranks that share one JVM.
 *
 * <p>Receives the requests of {@code io.fairlead.comm}. Hands each message straight from the memory
 * of the sending rank to that of the receiving one, and its completion from the sending task to the
 * waiting one.
 */
@NullMarked
package io.fairlead.comm.inprocess;

import org.jspecify.annotations.NullMarked;
