/**
 * Step "task": what runs, and where it would like to run.
 *
 * <p>Receives the work of the caller, as task bodies, and the poll sources of devices and
 * transports. Hands each body a task to run in, and each waiter the completion of what it waits
 * for.
 *
 * <pre>
 * noun         | what it is                                  | its state machine and table
 * Task         | identity, cancellation, attachments         | class comment of Task
 * TaskScope    | the bracket around children                 | TaskScope, Fork
 * Forks        | frames of fine-grained work, and the deque | Forks, JoinFrame, Runners
 * Placement    | where a task runs, and beside whom not      | Placement, Strand
 * Completion   | the outcome of something that goes on       | Completion
 * Owner        | one thread that owns what one thread may touch | Owner, CommandQueue, Retired
 * Carriers     | the threads that tasks run on, as one       | Carriers, Carrier, Watcher, Resumable
 * Gate         | who may enter an engine, as one table       | Gate, GateLock
 * Engine       | a library of the user's behind a rule       | Engine
 * TaskRuntime  | makes all of these and ends them            | TaskRuntime
 * </pre>
 *
 * <p><b>Lock order</b>, outermost first: an engine slot's {@code making} → a gate's {@code lock} →
 * an engine's {@code pool} → the runners' {@code lock}. A key's {@code rootLock} is taken before
 * all of them, since it is held while the key makes ROOT's value. Everything else is lock-free;
 * callbacks, hooks, commands, releases and polls run under no lock of this package, but for a body
 * under its own gate's.
 *
 * <p><b>Which thread runs what</b>
 *
 * <pre>
 * body of a fork           | its parent's thread, which joins, or a runner's, whoever comes first; a
 *                          | virtual thread of its own if it is eager, or a child of ROOT or of an
 *                          | owner's thread; the owner's thread if it is Bound
 * body of a Serial fork, or | a virtual thread of its own, on any carrier, while it has the turn of
 * one WITH_PARENT          | its strand
 * body of an INITIAL fork  | a virtual thread that one carrier runs; a platform thread in mode JDK
 * function of a frame      | the thread that joins it, as the same task, or a runner's as a child
 * body of an affine task   | a virtual thread whose one carrier is the owner's thread
 * body of enter            | the calling thread
 * body of a shifted call   | the owner's thread, as the caller's task, which waits meanwhile
 * callback of a completion | whoever settles it, or whoever registers it after that
 * fork and join hooks      | the task that forks and joins
 * end hook                 | the task that ends, while it still is current
 * poll, release, command   | the owner's thread; a poll of what has no owner: an idle carrier, the
 *                          | watcher, or the poller in mode JDK
 * </pre>
 *
 * <p><b>Waiting</b> is refused where it would hang or break a rule: in a callback on a thread that
 * polls, and on a virtual thread inside a call that has a context current.
 */
@NullMarked
package io.fairlead.task;

import org.jspecify.annotations.NullMarked;
