package io.fairlead.task;

import io.fairlead.fault.DeadlineExceededException;
import io.fairlead.fault.EngineException;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Somebody's own library behind a thread rule: how many instances there are, where each may be
 * entered, how much memory a call may take.
 *
 * <p><b>A call</b> waits for memory (admission), then for an instance, always in this order, so
 * that no two calls hold what the other wants; runs where the rule allows, as the caller's task;
 * and gives both back when what it left running has ended (release gate).
 *
 * <pre>
 * call:   FOR MEMORY → FOR AN INSTANCE → MAKING IT (if there is none) → IN ITS BODY → BEHIND ITS GATE
 *         ends early where it is cancelled or interrupted, refused, or the engine closes, up to and
 *         with the wait for an instance; and in MAKING, where the factory fails
 * slot:   IDLE → TAKEN → (instance made, if there is none) → IN CALL → BEHIND ITS GATE → IDLE
 *         a failed factory, a failed gate, and an instance that did not survive a body that threw
 *         leave a slot whose next call makes a new instance; the old one is destroyed first
 * engine: OPEN → CLOSING (waiting calls fail, calls in flight end) → ENDING (one closer destroys the
 *         instances) → CLOSED
 * </pre>
 *
 * <p><b>Order.</b> Of the calls that wait for an instance the most urgent is next (the priority of
 * its task), of those alike the one that waits longest; nobody overtakes who waits already. A
 * steady flow of urgent calls can keep others waiting. In what order memory is given is the
 * admission's affair; calls ask it as they come.
 *
 * <p><b>Instances by rule.</b> OWNER_ONLY has an owner thread for each instance, where it is made,
 * called and destroyed. ONE_AT_A_TIME and CONTEXT_CURRENT have a pool, and run on the caller's
 * thread. Of the idle ones the warmest is used first; one is made when all that exist are taken.
 * ANY_THREAD has one instance that all calls share at once: the first call makes it while others
 * wait, and so does the first after it broke, once nobody is in it any more.
 *
 * <p><b>Deadlocks.</b> A call in which others wait, directly or through calls, is {@link
 * WaitGraph.Held}: a wait for an instance that could never end fails.
 *
 * <pre>
 * field                         | guard
 * idle, waiting, admitting, inFlight, phase, the calls' slot and links | pool, a leaf lock:
 *                               | nothing is called under it
 * slot.instance, gate, broken   | whoever has the slot to itself; volatile for stats, and since
 *                               | a gate may break it from any thread before it gives it back
 * call.step, since              | the call; volatile / plain: read for messages only
 * </pre>
 *
 * Lock order: {@link WaitGraph}'s → pool. Neither is held while anything of the user's runs.
 *
 * @param <I> the instance
 */
public final class Engine<I> implements AutoCloseable {
  private static final System.Logger LOG = System.getLogger(Engine.class.getName());

  /** Calls that a message names. */
  private static final int NAMED_MAX = 8;

  private enum Phase {
    OPEN,
    CLOSING,
    ENDING,
    CLOSED
  }

  private enum Step {
    WAITING("waits for its turn"),
    MAKING("makes an instance"),
    BODY("is in its body"),
    GATED("is behind its release gate");

    final String words;

    Step(String words) {
      this.words = words;
    }
  }

  /** One call, from asking to giving back. */
  private static final class Call<I> extends WaitGraph.Held {
    private static final AtomicLong NUMBERS = new AtomicLong();

    /** The most urgent first, then the oldest. */
    static final Comparator<Call<?>> ORDER =
        Comparator.<Call<?>>comparingInt(call -> call.task.priority())
            .reversed()
            .thenComparingLong(call -> call.number);

    final Engine<I> engine;
    final Task task;

    /** Counted where it has to wait: an order among those that do. */
    private long number;

    private volatile Step step = Step.WAITING;
    private long since;
    private Completion.@Nullable Source<@Nullable Void> turn;
    private @Nullable Slot<I> slot;

    /** Whether it has an instance to make: ANY_THREAD, where it is alone then. */
    private boolean makes;

    private boolean begun;

    /** Whether it has waited already, for memory. */
    private boolean queued;

    private @Nullable Call<I> previous;
    private @Nullable Call<I> next;

    Call(Engine<I> engine, Task task) {
      this.engine = engine;
      this.task = task;
    }

    void step(Step next) {
      since = System.nanoTime();
      step = next;
    }

    Slot<I> slot() {
      return Objects.requireNonNull(slot, "it has its turn");
    }

    @Override
    String where() {
      return "in a call of engine '" + engine.name + "'";
    }

    /** For messages. */
    String describe() {
      Step now = step;
      long millis = now == Step.WAITING ? 0 : (System.nanoTime() - since) / 1_000_000;
      return "task '" + task.name() + "' " + now.words + " for " + millis + " ms";
    }
  }

  private static final class Slot<I> {
    final @Nullable Owner owner;
    volatile @Nullable I instance;
    volatile @Nullable Gate gate;
    volatile boolean broken;

    Slot(String engine, @Nullable Owner owner) {
      this.owner = owner;
      this.gate =
          owner == null ? null : Gate.of(engine, ThreadRule.OWNER_ONLY, owner, Set.of(), null);
    }

    boolean isUsable() {
      return instance != null && !broken;
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
  private final TreeSet<Call<I>> waiting = new TreeSet<>(Call.ORDER);
  private final Set<Completion<?>> admitting = new LinkedHashSet<>();
  private @Nullable Call<I> newest;
  private int inFlight;
  private Phase phase = Phase.OPEN;

  /** Who destroys instances in no task; to find a close from within. */
  private volatile @Nullable Thread destroying;

  /** How long a close waits before it says for what, and again. Shorter in tests. */
  volatile Duration sayAfter = Duration.ofSeconds(10);

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
   * instance and for an owner's thread. Cancellation (the deadline of a scope, too) and interrupts
   * end these waits; a body that has begun is waited for.
   *
   * @param bytes what admission is asked for; 0 asks for nothing
   * @return what the body returned
   * @throws RuntimeException unchecked exceptions of the body, as they are
   * @throws EngineException around a checked exception of the body or factory; if the engine is
   *     closed, also while the call waits; if its queue is full; for a call from inside a call of
   *     the same engine, which would wait for itself; and if the wait for an instance would never
   *     end, since those that have them wait, perhaps through other engines, for this call: says
   *     who waits for whom
   * @throws IllegalStateException on a thread that must not wait, or, but for ANY_THREAD, inside a
   *     call that has a context current
   */
  public <T extends @Nullable Object> T call(long bytes, EngineCall<I, T> body) {
    Objects.requireNonNull(body, "body");
    Task task = Task.current();
    if (task.isRoot()) {
      return runtime.enter(name, 0, () -> call(bytes, body));
    }
    checkCaller(task);
    if (rule != ThreadRule.ANY_THREAD) {
      task.checkMayWait(); // always, not only where it happens to have to wait
    }
    Call<I> call = new Call<>(this, task);
    @Nullable AutoCloseable admitted = admit(call, bytes);
    try {
      take(call);
    } catch (RuntimeException | Error e) {
      giveBack(admitted);
      throw e;
    }
    return run(call, admitted, body);
  }

  /**
   * As call, but waits for nobody: empty if memory or an instance is not there at once, also while
   * another call makes the instance that all share. If there is room for one more instance, it
   * makes that, for as long as the factory takes. The body is waited for; it must return a value.
   */
  public <T> Optional<T> tryCall(long bytes, EngineCall<I, T> body) {
    Objects.requireNonNull(body, "body");
    Task task = Task.current();
    if (task.isRoot()) {
      return runtime.enter(name, 0, () -> tryCall(bytes, body));
    }
    checkCaller(task);
    Completion<AutoCloseable> admission = ask(bytes);
    if (admission != null && !admission.isDone() && admission.cancel()) {
      refusals.increment();
      return Optional.empty();
    }
    AutoCloseable admitted = admission == null ? null : admission.getNow();
    Call<I> call = new Call<>(this, task);
    boolean taken;
    try {
      taken = takeNow(call);
    } catch (RuntimeException | Error e) {
      giveBack(admitted);
      throw e;
    }
    if (!taken) {
      giveBack(admitted);
      refusals.increment();
      return Optional.empty();
    }
    T value = run(call, admitted, body);
    return Optional.of(Objects.requireNonNull(value, "the body of a tryCall must return a value"));
  }

  /** A snapshot. Any thread; takes the pool's lock for a moment. */
  public EngineStats stats() {
    WaitGraph.lock(pool);
    try {
      int made = 0;
      for (Slot<I> slot : slots) {
        made += slot.instance == null ? 0 : 1;
      }
      return new EngineStats(
          calls.sum(), failures.sum(), refusals.sum(), made, inFlight, waiting.size());
    } finally {
      pool.unlock();
    }
  }

  /** Bugs of the caller that would hang if they were not found here. */
  private void checkCaller(Task task) {
    Role role = Role.current();
    if (!role.mayWait()) {
      throw new IllegalStateException(
          "engine '"
              + name
              + "' is called by a "
              + role
              + ", which must not wait: let a task make the call");
    }
    if (rule != ThreadRule.ANY_THREAD && isInside(task)) {
      throw nested(task);
    }
  }

  private boolean isInside(Task task) {
    WaitGraph.Frame frames = task.frames;
    for (WaitGraph.In in = frames == null ? null : frames.inside; in != null; in = in.next()) {
      if (in.held() instanceof Call<?> call && call.engine == this) {
        return true;
      }
    }
    return false;
  }

  private EngineException nested(Task task) {
    return new EngineException(
        name,
        "called from inside one of its own calls ("
            + task
            + "): the inner call would wait for the instance that the outer one holds. Use the "
            + "instance that the outer call was given",
        null);
  }

  private <T extends @Nullable Object> T run(
      Call<I> call, @Nullable AutoCloseable admitted, EngineCall<I, T> body) {
    Task task = call.task;
    WaitGraph.Frame outer = task.frames;
    task.frames = new WaitGraph.In(call, outer);
    try {
      return inSlot(call, body);
    } catch (RuntimeException | Error e) {
      failures.increment();
      throw e;
    } finally {
      task.frames = outer;
      release(call, admitted);
    }
  }

  private <T extends @Nullable Object> T inSlot(Call<I> call, EngineCall<I, T> body) {
    Slot<I> slot = call.slot();
    if (slot.owner == null) {
      make(call, slot); // gives the gate; an owner's slot has one, and makes in the same hop
    }
    return Objects.requireNonNull(slot.gate).call("call", () -> callMade(call, slot, body));
  }

  private <T extends @Nullable Object> T callMade(Call<I> call, Slot<I> slot, EngineCall<I, T> body)
      throws Exception {
    I instance = make(call, slot);
    calls.increment();
    call.begun = true;
    call.step(Step.BODY);
    try {
      return Task.nullable(body.call(instance));
    } catch (Throwable thrown) {
      if (!survives(instance, thrown)) {
        slot.broken = true; // volatile: whoever has it next sees it
      }
      throw thrown;
    }
  }

  @SuppressWarnings("CatchingUnchecked") // whatever the body threw must come out
  private boolean survives(I instance, Throwable thrown) {
    try {
      return factory.survives(instance, thrown);
    } catch (Throwable e) {
      LOG.log(Level.WARNING, "engine '" + name + "': asking for an instance's state failed", e);
      return false;
    }
  }

  // --- instances
  // ------------------------------------------------------------------------------------

  /** The slot's instance, made now if there is none. On the thread where the rule wants it. */
  private I make(Call<I> call, Slot<I> slot) {
    I there = slot.instance;
    boolean usable = rule == ThreadRule.ANY_THREAD ? !call.makes : !slot.broken;
    if (there != null && usable) {
      return there; // one that is shared may have broken since: others are in it, too
    }
    call.step(Step.MAKING);
    destroy(slot);
    I made = create(slot);
    call.makes = false;
    if (rule == ThreadRule.ANY_THREAD) {
      passOn(grantNext()); // to all that waited for it
    }
    return made;
  }

  private I create(Slot<I> slot) {
    I made;
    try {
      made = Objects.requireNonNull(factory.create(), "the factory returned null");
    } catch (Exception e) {
      throw new EngineException(name, "its factory failed: " + e, e);
    }
    if (slot.owner == null) {
      try {
        slot.gate = Gate.of(name, rule, null, Set.of(), binding(made));
      } catch (RuntimeException | Error e) {
        end(made); // nobody will have it
        throw e;
      }
    }
    slot.broken = false;
    slot.instance = made;
    return made;
  }

  private @Nullable Binding binding(I made) {
    Binding binding;
    try {
      binding = factory.binding(made);
    } catch (RuntimeException e) {
      throw new EngineException(name, "its factory failed: " + e, e);
    }
    if (rule == ThreadRule.CONTEXT_CURRENT && binding == null) {
      throw new EngineException(
          name, "is CONTEXT_CURRENT, but its factory gives no binding: override binding()", null);
    }
    return binding;
  }

  private void destroy(Slot<I> slot) {
    I instance = slot.instance;
    slot.instance = null;
    slot.broken = false;
    if (instance != null) {
      end(instance);
    }
  }

  @SuppressWarnings("CatchingUnchecked") // an instance that does not end must not stop the others
  private void end(I instance) {
    try {
      factory.destroy(instance);
    } catch (Throwable e) {
      LOG.log(Level.WARNING, "engine '" + name + "': destroying an instance failed", e);
    }
  }

  // --- taking and giving back -------------------------------------------------------------------

  private void take(Call<I> call) {
    WaitGraph.lock(pool);
    try {
      checkOpen();
      if (waiting.isEmpty() && grant(call)) {
        return;
      }
      if (!call.queued) { // who waited for memory has its place already
        checkRoom();
      }
      call.number = Call.NUMBERS.incrementAndGet();
      call.turn = Completion.source();
      waiting.add(call);
    } finally {
      pool.unlock();
    }
    await(call);
  }

  private boolean takeNow(Call<I> call) {
    WaitGraph.lock(pool);
    try {
      checkOpen();
      return waiting.isEmpty() && grant(call);
    } finally {
      pool.unlock();
    }
  }

  /** Under the pool's lock. */
  private void checkOpen() {
    if (phase != Phase.OPEN) {
      throw new EngineException(name, "is closed", null);
    }
  }

  /** Under the pool's lock. */
  private void checkRoom() {
    if (waiting.size() + admitting.size() >= limits.queue()) {
      refusals.increment();
      throw new EngineException(
          name, "its queue of " + limits.queue() + " waiting calls is full; try again later", null);
    }
  }

  /** Under the pool's lock: gives the call its turn, if there is one. */
  private boolean grant(Call<I> call) {
    Slot<I> slot = rule == ThreadRule.ANY_THREAD ? sharedSlot(call) : idle.pollFirst();
    if (slot == null) {
      return false;
    }
    call.slot = slot;
    call.next = newest;
    if (newest != null) {
      newest.previous = call;
    }
    newest = call;
    inFlight++;
    return true;
  }

  /** Under the pool's lock. One that is to be made, or made again, is made by a call alone. */
  private @Nullable Slot<I> sharedSlot(Call<I> call) {
    Slot<I> only = slots.getFirst();
    call.makes = !only.isUsable();
    return call.makes && inFlight > 0 ? null : only;
  }

  private void await(Call<I> call) {
    Completion<@Nullable Void> turn = turn(call).completion();
    WaitGraph.Frame frames = WaitGraph.framesHere(call.task);
    try {
      if (frames == null) {
        turn.await();
      } else {
        turn.await(new Wait<>(this, call.task, frames, turn, true, slots.size()));
      }
    } catch (RuntimeException | Error stop) {
      withdraw(call);
      throw stop;
    }
  }

  private Completion.Source<@Nullable Void> turn(Call<I> call) {
    return Objects.requireNonNull(call.turn, "it waits for its turn");
  }

  private void withdraw(Call<I> call) {
    if (turn(call).completion().cancel()) {
      WaitGraph.lock(pool);
      try {
        waiting.remove(call);
      } finally {
        pool.unlock();
      }
    } else if (turn(call).completion().state() == Completion.State.DONE) {
      passOn(give(call)); // its turn came while it gave up
    }
  }

  /** Takes the call's slot back; gives who has it next. */
  private @Nullable Call<I> give(Call<I> call) {
    boolean empty;
    Call<I> following;
    WaitGraph.lock(pool);
    try {
      unlink(call);
      Slot<I> slot = call.slot();
      if (rule == ThreadRule.ANY_THREAD) {
        call.makes = false;
      } else if (slot.instance == null || slot.broken) {
        idle.addLast(slot); // used when none that has an instance is idle
      } else {
        idle.addFirst(slot); // the warmest is used first
      }
      following = nextGranted();
      empty = phase != Phase.OPEN && inFlight == 0;
    } finally {
      pool.unlock();
    }
    if (empty) {
      drained.complete(null);
    }
    return following;
  }

  private @Nullable Call<I> grantNext() {
    WaitGraph.lock(pool);
    try {
      return nextGranted();
    } finally {
      pool.unlock();
    }
  }

  /** Under the pool's lock. */
  private @Nullable Call<I> nextGranted() {
    if (waiting.isEmpty() || !grant(waiting.first())) {
      return null;
    }
    return waiting.pollFirst();
  }

  /** Under the pool's lock. */
  private void unlink(Call<I> call) {
    if (call.previous == null) {
      newest = call.next;
    } else {
      call.previous.next = call.next;
    }
    if (call.next != null) {
      call.next.previous = call.previous;
    }
    inFlight--;
  }

  /** Tells it that it has its turn, and whoever has one after that. */
  private void passOn(@Nullable Call<I> first) {
    for (Call<I> next = first; next != null; ) {
      boolean told = turn(next).complete(null);
      next = told ? grantNext() : give(next); // it gave up meanwhile
    }
  }

  private @Nullable Completion<AutoCloseable> ask(long bytes) {
    if (bytes < 0) {
      throw new IllegalArgumentException("engine '" + name + "': " + bytes + " bytes");
    }
    Admission admission = limits.admission();
    return bytes == 0 || admission == null
        ? null
        : Objects.requireNonNull(
            admission.admit(bytes), () -> "the admission of engine '" + name + "' returned null");
  }

  private @Nullable AutoCloseable admit(Call<I> call, long bytes) {
    Completion<AutoCloseable> admission = ask(bytes);
    if (admission == null) {
      return null;
    }
    if (admission.isDone()) {
      return admission.getNow();
    }
    try {
      enterAdmitting(admission);
      call.queued = true;
      return admission.await();
    } catch (RuntimeException | Error stop) {
      if (!admission.cancel() && admission.state() == Completion.State.DONE) {
        giveBack(admission.getNow());
      }
      if (isClosing() && admission.state() == Completion.State.CANCELLED) {
        throw closedBeforeItsTurn();
      }
      throw stop;
    } finally {
      leaveAdmitting(admission);
    }
  }

  private void enterAdmitting(Completion<?> admission) {
    WaitGraph.lock(pool);
    try {
      checkOpen();
      checkRoom();
      admitting.add(admission);
    } finally {
      pool.unlock();
    }
  }

  private void leaveAdmitting(Completion<?> admission) {
    WaitGraph.lock(pool);
    try {
      admitting.remove(admission);
    } finally {
      pool.unlock();
    }
  }

  private boolean isClosing() {
    WaitGraph.lock(pool);
    try {
      return phase != Phase.OPEN;
    } finally {
      pool.unlock();
    }
  }

  private EngineException closedBeforeItsTurn() {
    return new EngineException(name, "was closed before the call's turn came", null);
  }

  /** After a body: the slot and the memory go back when the gate says so. */
  private void release(Call<I> call, @Nullable AutoCloseable admitted) {
    ReleaseGate gate = limits.releaseGate();
    if (gate == null || !call.begun) {
      giveBack(admitted);
      passOn(give(call));
      return;
    }
    call.step(Step.GATED);
    afterCall(gate, call.task)
        .onDone(
            done -> {
              if (done.cause() != null) {
                // nobody knows its state: volatile, before whoever has it next is told
                call.slot().broken = true;
              }
              giveBack(admitted);
              passOn(give(call));
            });
  }

  @SuppressWarnings("CatchingUnchecked") // the slot must come back whatever the gate throws
  private Completion<?> afterCall(ReleaseGate gate, Task task) {
    try {
      return Objects.requireNonNull(gate.afterCall(task), "the release gate returned null");
    } catch (Throwable e) {
      LOG.log(Level.WARNING, "engine '" + name + "': its release gate threw", e);
      return Completion.failed(e);
    }
  }

  @SuppressWarnings("CatchingUnchecked") // the slot must come back whatever it throws
  private void giveBack(@Nullable AutoCloseable admitted) {
    if (admitted == null) {
      return;
    }
    try {
      admitted.close();
    } catch (Throwable e) {
      LOG.log(Level.WARNING, "engine '" + name + "': giving back admitted memory failed", e);
    }
  }

  // --- waits that are known
  // ------------------------------------------------------------------------

  /** How many calls in flight are stuck. */
  private int stuck(Predicate<WaitGraph.Held> stuck) {
    WaitGraph.lock(pool);
    try {
      int count = 0;
      for (Call<I> call = newest; call != null; call = call.next) {
        count += stuck.test(call) ? 1 : 0;
      }
      return count;
    } finally {
      pool.unlock();
    }
  }

  /** A wait for an instance, or for the end of all calls. */
  private static final class Wait<I> extends WaitGraph.Wait {
    private final Engine<I> engine;

    /** So many calls that are stuck make it hopeless: all, or for a close one. */
    private final int enough;

    private final Completion<?> until;

    Wait(
        Engine<I> engine,
        Task task,
        WaitGraph.Frame frames,
        Completion<?> until,
        boolean obeys,
        int enough) {
      super(task, frames, obeys);
      this.engine = engine;
      this.until = until;
      this.enough = enough;
    }

    @Override
    boolean isDone() {
      return until.isDone();
    }

    @Override
    boolean isHopeless(Predicate<WaitGraph.Held> stuck) {
      return engine.stuck(stuck) >= enough;
    }

    @Override
    String what() {
      return (isClose() ? "the end of engine '" : "an instance of engine '") + engine.name + "'";
    }

    private boolean isClose() {
      return until.equals(engine.drained.completion());
    }

    @Override
    EngineException refusal(String circle) {
      return new EngineException(
          engine.name,
          (isClose() ? "closing it" : "the call")
              + " would wait for ever: "
              + circle
              + ". "
              + (isClose()
                  ? "Close it outside of all calls"
                  : "Call engines inside each other in one order only, or end one call before the "
                      + "next begins"),
          null);
    }
  }

  // --- closing
  // ------------------------------------------------------------------------------------

  /**
   * Refuses new calls, fails those that wait for memory or an instance, lets those in flight end
   * together with what is behind their gates, then destroys the instances, each where its rule
   * wants it. Waits for all that, uninterruptibly; an interrupt status is kept. While it waits for
   * long it logs, again and again, for which calls, and what they do. Any thread that may wait;
   * several may close at once, and twice is harmless.
   *
   * @throws IllegalStateException from inside one of its own calls, or from its factory: it would
   *     wait for itself
   * @throws EngineException if its calls wait, through other engines or owners, for the caller;
   *     says how. The engine takes no calls any more; close it again outside
   */
  @Override
  public void close() {
    close(Long.MAX_VALUE);
  }

  /**
   * As {@link #close()}, but waits no longer than {@code limit}.
   *
   * @throws EngineException when it has passed: says which calls are in flight, of which tasks, and
   *     what they do. The engine takes no calls any more; its instances are destroyed by the next
   *     close that finds no call in flight, that of its runtime at the latest
   */
  public void close(Duration limit) {
    close(Completion.nanos(limit));
  }

  private void close(long nanos) {
    checkNotInside();
    beginClosing();
    long end = System.nanoTime() + nanos;
    Wait<I> known = knownClose(nanos);
    if (known != null) {
      WaitGraph.enter(known);
    }
    try {
      awaitSaying(drained.completion(), nanos, end, known);
    } finally {
      if (known != null) {
        WaitGraph.leave(known);
      }
    }
    if (beginEnding()) {
      end();
    }
    awaitSaying(closed.completion(), nanos, end, null);
  }

  void checkNotInside() {
    Task task = Task.current();
    if (isInside(task) || Thread.currentThread().equals(destroying)) {
      throw new IllegalStateException(
          "engine '" + name + "' is closed from inside one of its own calls: close it outside");
    }
  }

  private @Nullable Wait<I> knownClose(long nanos) {
    Task task = Task.current();
    WaitGraph.Frame frames = nanos == Long.MAX_VALUE ? WaitGraph.framesHere(task) : null;
    return frames == null ? null : new Wait<>(this, task, frames, drained.completion(), false, 1);
  }

  private void beginClosing() {
    List<Call<I>> losers;
    List<Completion<?>> requests;
    boolean empty;
    WaitGraph.lock(pool);
    try {
      if (phase != Phase.OPEN) {
        return;
      }
      phase = Phase.CLOSING;
      losers = new ArrayList<>(waiting);
      waiting.clear();
      requests = new ArrayList<>(admitting);
      empty = inFlight == 0;
    } finally {
      pool.unlock();
    }
    losers.forEach(loser -> turn(loser).fail(closedBeforeItsTurn()));
    requests.forEach(Completion::cancel);
    if (empty) {
      drained.complete(null);
    }
  }

  private void awaitSaying(
      Completion<?> done, long nanos, long end, WaitGraph.@Nullable Wait known) {
    for (Duration nap = sayAfter; ; nap = nap.multipliedBy(2)) {
      long left = nanos == Long.MAX_VALUE ? Long.MAX_VALUE : end - System.nanoTime();
      boolean last = left <= nap.toNanos();
      try {
        done.awaitUninterruptibly(last ? Duration.ofNanos(Math.max(0, left)) : nap, known);
        return;
      } catch (DeadlineExceededException notYet) {
        if (last) {
          throw new EngineException(name, "is still closing: " + whatIsLeft(), null);
        }
        LOG.log(Level.WARNING, "engine '" + name + "' is still closing: " + whatIsLeft());
      }
    }
  }

  /** Which calls a close waits for, in words. */
  private String whatIsLeft() {
    List<String> named = new ArrayList<>();
    int count;
    WaitGraph.lock(pool);
    try {
      count = inFlight;
      for (Call<I> call = newest; call != null && named.size() < NAMED_MAX; call = call.next) {
        named.add(call.describe());
      }
    } finally {
      pool.unlock();
    }
    if (count == 0) {
      return "its factory destroys instances";
    }
    String more = count > named.size() ? "; and " + (count - named.size()) + " more" : "";
    return count + " calls in flight: " + String.join("; ", named) + more;
  }

  /** True for the one closer that destroys the instances. */
  private boolean beginEnding() {
    WaitGraph.lock(pool);
    try {
      if (phase != Phase.CLOSING) {
        return false;
      }
      phase = Phase.ENDING;
      return true;
    } finally {
      pool.unlock();
    }
  }

  private void end() {
    try {
      slots.forEach(this::end);
    } finally {
      setClosed();
      runtime.forget(this);
      closed.complete(null);
    }
  }

  private void setClosed() {
    WaitGraph.lock(pool);
    try {
      phase = Phase.CLOSED;
    } finally {
      pool.unlock();
    }
  }

  @SuppressWarnings("CatchingUnchecked") // one slot that does not end must not stop the others
  private void end(Slot<I> slot) {
    Owner owner = slot.owner;
    if (owner == null) {
      destroyAlone(slot);
      return;
    }
    try {
      owner
          .<@Nullable Void>call(
              () -> {
                destroyAlone(slot);
                return null;
              })
          .awaitUninterruptibly();
    } catch (Throwable e) {
      LOG.log(Level.WARNING, "engine '" + name + "': ending an instance failed", e);
    }
    owner.close();
  }

  private void destroyAlone(Slot<I> slot) {
    destroying = Thread.currentThread();
    try {
      destroy(slot);
    } finally {
      destroying = null;
    }
  }

  @Override
  public String toString() {
    return "Engine[" + name + " " + rule + "]";
  }
}
