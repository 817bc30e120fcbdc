package io.fairlead.task;

import io.fairlead.fault.EngineException;
import java.lang.System.Logger.Level;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * Somebody's own library behind a thread rule: how many instances there are, where each may be
 * entered, how much memory a call may take.
 *
 * <p><b>A call</b> waits for memory (admission), then for an instance (first come, first served),
 * always in this order, so that no two calls hold what the other wants; runs where the rule allows,
 * as the caller's task; and gives both back when what it left running has ended (release gate).
 *
 * <pre>
 * slot:   IDLE → TAKEN → (instance made, if there is none) → IN CALL → BEHIND ITS GATE → IDLE
 *         a failed factory, or a failed gate, leaves a slot whose next call makes a new instance
 * engine: OPEN → CLOSING (waiting calls fail, calls in flight end) → CLOSED (instances destroyed)
 * </pre>
 *
 * Instances by rule: OWNER_ONLY has an owner thread for each instance, where it is made, called and
 * destroyed. ONE_AT_A_TIME and CONTEXT_CURRENT have a pool, and run on the caller's thread.
 * ANY_THREAD has one instance that all calls share at once.
 *
 * <pre>
 * field                      | guard
 * idle, waiters, shared, phase | pool, a leaf lock: nothing is called under it
 * slot.instance, gate, broken| whoever took the slot; ANY_THREAD: slot.making while it is made
 * </pre>
 *
 * Lock order: slot.making → the gate's lock → pool; no lock is held while waiting for a slot.
 *
 * @param <I> the instance
 */
public final class Engine<I> implements AutoCloseable {
  private static final System.Logger LOG = System.getLogger(Engine.class.getName());

  private enum Phase {
    OPEN,
    CLOSING,
    CLOSED
  }

  /** One engine call that a task is in. */
  record Frame(Engine<?> engine, @Nullable Frame outer) {}

  private static final class Slot<I> {
    final @Nullable Owner owner;
    final ReentrantLock making = new ReentrantLock();
    volatile @Nullable I instance;
    volatile @Nullable Gate gate;
    volatile boolean broken;

    Slot(String engine, @Nullable Owner owner) {
      this.owner = owner;
      this.gate =
          owner == null ? null : Gate.of(engine, ThreadRule.OWNER_ONLY, owner, Set.of(), null);
    }
  }

  private final TaskRuntime runtime;
  private final String name;
  private final ThreadRule rule;
  private final EngineFactory<I> factory;
  private final EngineLimits limits;
  private final List<Slot<I>> slots = new ArrayList<>();

  private final ReentrantLock pool = new ReentrantLock();
  private final ArrayDeque<Slot<I>> idle = new ArrayDeque<>();
  private final Set<Completion.Source<Slot<I>>> waiters = new LinkedHashSet<>();
  private Phase phase = Phase.OPEN;
  private int shared;

  private final Completion.Source<@Nullable Void> drained = Completion.source();
  private final Completion.Source<@Nullable Void> closed = Completion.source();
  private final LongAdder calls = new LongAdder();
  private final LongAdder failures = new LongAdder();
  private final LongAdder refusals = new LongAdder();

  Engine(
      TaskRuntime runtime,
      String name,
      ThreadRule rule,
      EngineFactory<I> factory,
      EngineLimits limits) {
    this.runtime = runtime;
    this.name = Objects.requireNonNull(name, "name");
    this.rule = Objects.requireNonNull(rule, "rule");
    this.factory = Objects.requireNonNull(factory, "factory");
    this.limits = Objects.requireNonNull(limits, "limits");
    int count = rule == ThreadRule.ANY_THREAD ? 1 : limits.instances();
    for (int i = 0; i < count; i++) {
      slots.add(new Slot<>(name, ownerFor(runtime, i)));
    }
    idle.addAll(slots);
  }

  private @Nullable Owner ownerFor(TaskRuntime runtime, int index) {
    return rule == ThreadRule.OWNER_ONLY ? runtime.engineOwner(name + "-" + index) : null;
  }

  /** As given. */
  public String name() {
    return name;
  }

  /** As given. */
  public ThreadRule rule() {
    return rule;
  }

  // --- calling
  // ------------------------------------------------------------------------------------

  /**
   * Runs the body with an instance. Any thread that may wait; one that is in no task enters for the
   * length of the call. A task parks, a foreign thread blocks, while it waits for memory, for an
   * instance and for an owner's thread. Cancellation and interrupts end these waits; a body that
   * has begun is waited for.
   *
   * @param bytes what admission is asked for; 0 asks for nothing
   * @return what the body returned
   * @throws RuntimeException unchecked exceptions of the body, as they are
   * @throws EngineException around a checked exception of the body or factory; if the engine is
   *     closed; if its queue is full; and for a call from inside a call of the same engine, which
   *     would wait for itself
   */
  public <T extends @Nullable Object> T call(long bytes, EngineCall<I, T> body) {
    Objects.requireNonNull(body, "body");
    if (Task.current().isRoot()) {
      return runtime.enter(name, 0, () -> call(bytes, body));
    }
    checkCaller();
    @Nullable AutoCloseable admitted = admit(bytes);
    Slot<I> slot;
    try {
      slot = take();
    } catch (RuntimeException e) {
      giveBack(admitted);
      throw e;
    }
    return run(slot, admitted, body);
  }

  /**
   * As call, but does not wait for memory or an instance: empty if either is not there at once. The
   * body itself is waited for; it must return a value.
   */
  public <T> Optional<T> tryCall(long bytes, EngineCall<I, T> body) {
    Objects.requireNonNull(body, "body");
    if (Task.current().isRoot()) {
      return runtime.enter(name, 0, () -> tryCall(bytes, body));
    }
    checkCaller();
    Completion<AutoCloseable> admission = ask(bytes);
    if (admission != null && !admission.isDone() && admission.cancel()) {
      refusals.increment();
      return Optional.empty();
    }
    AutoCloseable admitted = admission == null ? null : admission.getNow();
    Slot<I> slot;
    try {
      slot = takeNow();
    } catch (RuntimeException e) {
      giveBack(admitted);
      throw e;
    }
    if (slot == null) {
      giveBack(admitted);
      refusals.increment();
      return Optional.empty();
    }
    T value = run(slot, admitted, body);
    return Optional.of(Objects.requireNonNull(value, "the body of a tryCall must return a value"));
  }

  /** A snapshot. Any thread; takes the pool's lock for a moment. */
  public EngineStats stats() {
    pool.lock();
    try {
      int made = 0;
      for (Slot<I> slot : slots) {
        made += slot.instance == null ? 0 : 1;
      }
      int busy = rule == ThreadRule.ANY_THREAD ? shared : slots.size() - idle.size();
      return new EngineStats(
          calls.sum(), failures.sum(), refusals.sum(), made, busy, waiters.size());
    } finally {
      pool.unlock();
    }
  }

  /** Bugs of the caller that would hang if they were not found here. */
  private void checkCaller() {
    Role role = Role.current();
    if (!role.mayWait()) {
      throw new IllegalStateException(
          "engine '"
              + name
              + "' is called by a "
              + role
              + ", which must not wait: let a task make the call");
    }
    if (rule != ThreadRule.ANY_THREAD && isInside()) {
      throw nested();
    }
  }

  private boolean isInside() {
    for (Frame f = Task.current().engineFrames; f != null; f = f.outer) {
      if (f.engine == this) {
        return true;
      }
    }
    return false;
  }

  private EngineException nested() {
    return new EngineException(
        name,
        "called from inside one of its own calls ("
            + Task.current()
            + "): the inner call would wait for the instance that the outer one holds. Use the "
            + "instance that the outer call was given",
        null);
  }

  private <T extends @Nullable Object> T run(
      Slot<I> slot, @Nullable AutoCloseable admitted, EngineCall<I, T> body) {
    Task task = Task.current();
    try {
      return inFrame(task, () -> inSlot(slot, body));
    } catch (RuntimeException | Error e) {
      failures.increment();
      throw e;
    } finally {
      release(task, slot, admitted);
    }
  }

  private <T extends @Nullable Object> T inFrame(Task task, java.util.function.Supplier<T> body) {
    Frame outer = task.engineFrames;
    task.engineFrames = new Frame(this, outer);
    try {
      return body.get();
    } finally {
      task.engineFrames = outer;
    }
  }

  private <T extends @Nullable Object> T inSlot(Slot<I> slot, EngineCall<I, T> body) {
    if (slot.owner == null) {
      make(slot); // gives the gate; an owner's slot has one, and makes in the same hop
    }
    return Objects.requireNonNull(slot.gate).call("call", () -> callMade(slot, body));
  }

  private <T extends @Nullable Object> T callMade(Slot<I> slot, EngineCall<I, T> body)
      throws Exception {
    I instance = make(slot);
    calls.increment();
    return Task.nullable(body.call(instance));
  }

  // --- instances
  // ------------------------------------------------------------------------------------

  /** The slot's instance, made now if there is none. On the thread where the rule wants it. */
  private I make(Slot<I> slot) {
    I there = slot.instance;
    if (there != null && !slot.broken) {
      return there;
    }
    Execution.lock(slot.making); // contended for ANY_THREAD only
    try {
      there = slot.instance;
      if (there != null && slot.broken) {
        destroy(slot);
        there = null;
      }
      if (there == null) {
        there = create(slot);
      }
      return there;
    } finally {
      slot.making.unlock();
    }
  }

  private I create(Slot<I> slot) {
    I made;
    Binding binding;
    try {
      made = Objects.requireNonNull(factory.create(), "the factory returned null");
      binding = factory.binding(made);
    } catch (Exception e) {
      throw new EngineException(name, "its factory failed: " + e, e);
    }
    if (rule == ThreadRule.CONTEXT_CURRENT && binding == null) {
      throw new EngineException(
          name, "is CONTEXT_CURRENT, but its factory gives no binding: override binding()", null);
    }
    if (slot.owner == null) {
      slot.gate = Gate.of(name, rule, null, Set.of(), binding);
    }
    slot.broken = false;
    slot.instance = made;
    return made;
  }

  private void destroy(Slot<I> slot) {
    I instance = slot.instance;
    slot.instance = null;
    slot.broken = false;
    if (instance == null) {
      return;
    }
    try {
      factory.destroy(instance);
    } catch (Exception e) {
      LOG.log(Level.WARNING, "engine '" + name + "': destroying an instance failed", e);
    }
  }

  // --- taking and giving back -------------------------------------------------------------------

  private Slot<I> take() {
    Completion.Source<Slot<I>> waiter;
    pool.lock();
    try {
      Slot<I> slot = idleSlot();
      if (slot != null) {
        return slot;
      }
      if (waiters.size() >= limits.queue()) {
        refusals.increment();
        throw new EngineException(
            name,
            "its queue of " + limits.queue() + " waiting calls is full; try again later",
            null);
      }
      waiter = Completion.source();
      waiters.add(waiter);
    } finally {
      pool.unlock();
    }
    return await(waiter);
  }

  private @Nullable Slot<I> takeNow() {
    pool.lock();
    try {
      return idleSlot();
    } finally {
      pool.unlock();
    }
  }

  /** Under the pool's lock. */
  private @Nullable Slot<I> idleSlot() {
    if (phase != Phase.OPEN) {
      throw new EngineException(name, "is closed", null);
    }
    if (rule == ThreadRule.ANY_THREAD) {
      shared++;
      return slots.getFirst();
    }
    // first come, first served: nobody overtakes those that wait
    return waiters.isEmpty() ? idle.pollFirst() : null;
  }

  private Slot<I> await(Completion.Source<Slot<I>> waiter) {
    Completion<Slot<I>> turn = waiter.completion();
    try {
      return turn.await();
    } catch (RuntimeException stop) {
      withdraw(waiter);
      throw stop;
    }
  }

  private void withdraw(Completion.Source<Slot<I>> waiter) {
    Completion<Slot<I>> turn = waiter.completion();
    if (turn.cancel()) {
      pool.lock();
      try {
        waiters.remove(waiter);
      } finally {
        pool.unlock();
      }
    } else if (turn.state() == Completion.State.DONE) {
      give(turn.getNow()); // its turn came while it gave up
    }
  }

  private void give(Slot<I> slot) {
    for (; ; ) {
      Completion.Source<Slot<I>> next;
      boolean empty;
      pool.lock();
      try {
        next = rule == ThreadRule.ANY_THREAD ? null : firstWaiter();
        if (rule == ThreadRule.ANY_THREAD) {
          shared--;
        } else if (next == null) {
          idle.addFirst(slot); // the warmest is used first
        }
        empty = phase == Phase.CLOSING && isDrained();
      } finally {
        pool.unlock();
      }
      if (empty) {
        drained.complete(null);
      }
      if (next == null || next.complete(slot)) {
        return;
      }
    }
  }

  /** Under the pool's lock. */
  private Completion.@Nullable Source<Slot<I>> firstWaiter() {
    if (waiters.isEmpty()) {
      return null;
    }
    Completion.Source<Slot<I>> next = waiters.iterator().next();
    waiters.remove(next);
    return next;
  }

  /** Under the pool's lock. */
  private boolean isDrained() {
    return rule == ThreadRule.ANY_THREAD ? shared == 0 : idle.size() == slots.size();
  }

  private @Nullable Completion<AutoCloseable> ask(long bytes) {
    if (bytes < 0) {
      throw new IllegalArgumentException("engine '" + name + "': " + bytes + " bytes");
    }
    Admission admission = limits.admission();
    return bytes == 0 || admission == null ? null : admission.admit(bytes);
  }

  private @Nullable AutoCloseable admit(long bytes) {
    Completion<AutoCloseable> admission = ask(bytes);
    if (admission == null) {
      return null;
    }
    try {
      return admission.await();
    } catch (RuntimeException stop) {
      if (!admission.cancel() && admission.state() == Completion.State.DONE) {
        giveBack(admission.getNow());
      }
      throw stop;
    }
  }

  /** After a body: the slot and the memory go back when the gate says so. */
  private void release(Task task, Slot<I> slot, @Nullable AutoCloseable admitted) {
    ReleaseGate gate = limits.releaseGate();
    if (gate == null) {
      giveBack(admitted);
      give(slot);
      return;
    }
    Completion<?> ended;
    try {
      ended = gate.afterCall(task);
    } catch (RuntimeException e) {
      ended = Completion.failed(e);
    }
    ended.onDone(
        done -> {
          if (done.cause() != null && rule != ThreadRule.ANY_THREAD) {
            slot.broken = true; // nobody knows its state: the next call makes a new instance
          }
          giveBack(admitted);
          give(slot);
        });
  }

  private void giveBack(@Nullable AutoCloseable admitted) {
    if (admitted == null) {
      return;
    }
    try {
      admitted.close();
    } catch (Exception e) {
      LOG.log(Level.WARNING, "engine '" + name + "': giving back admitted memory failed", e);
    }
  }

  // --- closing
  // ------------------------------------------------------------------------------------

  /**
   * Refuses new calls, fails those that wait for an instance, lets those in flight end together
   * with what is behind their gates, then destroys the instances, each where its rule wants it.
   * Waits for all that, uninterruptibly. Twice is harmless.
   *
   * @throws IllegalStateException from inside one of its own calls: it would wait for itself
   */
  @Override
  public void close() {
    if (isInside()) {
      throw new IllegalStateException(
          "engine '" + name + "' is closed from inside one of its own calls: close it outside");
    }
    if (beginClosing()) {
      drained.completion().awaitUninterruptibly();
      for (Slot<I> slot : slots) {
        end(slot);
      }
      pool.lock();
      try {
        phase = Phase.CLOSED;
      } finally {
        pool.unlock();
      }
      runtime.forget(this);
      closed.complete(null);
    }
    closed.completion().awaitUninterruptibly();
  }

  private boolean beginClosing() {
    List<Completion.Source<Slot<I>>> losers;
    boolean empty;
    pool.lock();
    try {
      if (phase != Phase.OPEN) {
        return false;
      }
      phase = Phase.CLOSING;
      losers = new ArrayList<>(waiters);
      waiters.clear();
      empty = isDrained();
    } finally {
      pool.unlock();
    }
    for (Completion.Source<Slot<I>> loser : losers) {
      loser.fail(new EngineException(name, "was closed before the call's turn came", null));
    }
    if (empty) {
      drained.complete(null);
    }
    return true;
  }

  private void end(Slot<I> slot) {
    Owner owner = slot.owner;
    if (owner == null) {
      destroy(slot);
      return;
    }
    owner
        .<@Nullable Void>call(
            () -> {
              destroy(slot);
              return null;
            })
        .awaitUninterruptibly();
    owner.close();
  }

  @Override
  public String toString() {
    return "Engine[" + name + " " + rule + "]";
  }
}
