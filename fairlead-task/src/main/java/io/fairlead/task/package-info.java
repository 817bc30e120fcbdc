/**
 * Step "task": what runs, and where it would like to run.
 *
 * <p>Receives the work of the caller, as task bodies, and the poll sources of devices and
 * transports. Hands each body a task to run in, and each waiter the completion of what it waits
 * for.
 */
@NullMarked
package io.fairlead.task;

import org.jspecify.annotations.NullMarked;
