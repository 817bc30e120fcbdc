package io.fairlead.task;

import io.fairlead.fault.EngineException;
import io.fairlead.fault.Mutant;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Decides for every call of an engine whether the caller may go in or somebody else must: law 2. No
 * caller decides for itself.
 *
 * <p>The decision is data: one table of rule × role, tested cell by cell.
 *
 * <pre>
 * rule \ role      TASK    FOREIGN  OWNER   DEVICE_MANAGER  COMM    CLEANER
 * ANY_THREAD       DIRECT  DIRECT   DIRECT  DIRECT          DIRECT  SHIFT
 * ONE_AT_A_TIME    LOCKED  LOCKED   LOCKED  SHIFT           SHIFT   SHIFT
 * CONTEXT_CURRENT  BIND    BIND     BIND    BIND            BIND    SHIFT
 * OWNER_ONLY       SHIFT   SHIFT    SHIFT   SHIFT           SHIFT   SHIFT
 * </pre>
 *
 * Then, in this order: a role that must always shift for this engine gets SHIFT; SHIFT on the
 * engine's own thread becomes what the rule asks of a thread that may go in; SHIFT without an owner
 * becomes REFUSE. Device managers and message loops do not wait for locks, and what runs after the
 * collector enters nothing at all.
 *
 * <p>All fields are final. {@code lock} guards the engine where the way is LOCKED; it is a leaf for
 * us, and the engine's body runs under it.
 */
public abstract sealed class Gate {

  /** How a call goes. */
  public enum Way {
    /** Now, on the calling thread. */
    DIRECT,
    /** On the calling thread, under the engine's lock. */
    LOCKED,
    /** On the calling thread, with the context made current and restored after. */
    BIND,
    /** On the owner's thread, through its queue. */
    SHIFT,
    /** Not at all. */
    REFUSE
  }

  /** The table. Public, so that it can be shown and tested. */
  public static final Map<ThreadRule, Map<Role, Way>> TABLE = table();

  private final String engine;
  private final ThreadRule rule;
  private final @Nullable Owner owner;
  private final Set<Role> shifts;
  private final @Nullable Binding binding;
  private final GateLock lock = new GateLock();

  private Gate(
      String engine,
      ThreadRule rule,
      @Nullable Owner owner,
      Set<Role> shifts,
      @Nullable Binding binding) {
    this.engine = engine;
    this.rule = rule;
    this.owner = owner;
    this.shifts = shifts;
    this.binding = binding;
  }

  /**
   * A gate for one engine.
   *
   * @param shifts roles that must shift whatever the table says
   * @throws IllegalArgumentException OWNER_ONLY without an owner, CONTEXT_CURRENT without a binding
   */
  public static Gate of(
      String engine,
      ThreadRule rule,
      @Nullable Owner owner,
      Set<Role> shifts,
      @Nullable Binding binding) {
    Objects.requireNonNull(engine, "engine");
    if (rule == ThreadRule.OWNER_ONLY && owner == null) {
      throw new IllegalArgumentException("engine '" + engine + "' is OWNER_ONLY: give its owner");
    }
    if (rule == ThreadRule.CONTEXT_CURRENT && binding == null) {
      throw new IllegalArgumentException(
          "engine '" + engine + "' is CONTEXT_CURRENT: give the binding that makes it current");
    }
    Set<Role> copy = shifts.isEmpty() ? Set.of() : Set.copyOf(EnumSet.copyOf(shifts));
    boolean open = rule == ThreadRule.ANY_THREAD && Set.of(Role.CLEANER).containsAll(copy);
    return open ? new Open(engine, owner, copy) : new Ruled(engine, rule, owner, copy, binding);
  }

  /** The way for a caller of this role on the calling thread. Any thread; never blocks. */
  public final Way decide(Role role) {
    Way way = shifts.contains(role) && !Mutant.on("gate.ignores-shifts") ? Way.SHIFT : look(role);
    if (way != Way.SHIFT) {
      return way;
    }
    if (owner == null) {
      return Way.REFUSE;
    }
    return owner.isOwnerThread() ? atHome() : Way.SHIFT;
  }

  private Way look(Role role) {
    return Objects.requireNonNull(Objects.requireNonNull(TABLE.get(rule)).get(role));
  }

  private Way atHome() {
    return switch (rule) {
      case ANY_THREAD, OWNER_ONLY -> Way.DIRECT;
      case ONE_AT_A_TIME -> Way.LOCKED;
      case CONTEXT_CURRENT -> Way.BIND;
    };
  }

  /**
   * Makes the call and waits for it. Parks a task that has to wait for the lock or the owner. The
   * body runs as the caller's task wherever it runs. Under BIND it must not suspend, which our own
   * waits check.
   *
   * @throws EngineException around a checked exception of the body, and if the call is refused
   * @throws IllegalStateException if the role would have to wait for the owner and must not: submit
   */
  public abstract <T extends @Nullable Object> T call(String operation, TaskBody<T> body);

  /** Any thread may enter: nobody but the cleaner is asked who it is. */
  private static final class Open extends Gate {
    Open(String engine, @Nullable Owner owner, Set<Role> shifts) {
      super(engine, ThreadRule.ANY_THREAD, owner, shifts, null);
    }

    /** A method of its own, so that it stays small enough to become a part of its caller. */
    @Override
    public <T extends @Nullable Object> T call(String operation, TaskBody<T> body) {
      try {
        return RoleThread.isCleaner() ? decided(operation, body) : Task.nullable(body.run());
      } catch (RuntimeException unchecked) {
        throw unchecked;
      } catch (Exception checked) {
        throw failed(operation, checked);
      }
    }
  }

  /** The table says who enters how. */
  private static final class Ruled extends Gate {
    Ruled(
        String engine,
        ThreadRule rule,
        @Nullable Owner owner,
        Set<Role> shifts,
        @Nullable Binding binding) {
      super(engine, rule, owner, shifts, binding);
    }

    @Override
    public <T extends @Nullable Object> T call(String operation, TaskBody<T> body) {
      try {
        return decided(operation, body);
      } catch (RuntimeException unchecked) {
        throw unchecked;
      } catch (Exception checked) {
        throw failed(operation, checked);
      }
    }
  }

  final <T extends @Nullable Object> T decided(String operation, TaskBody<T> body)
      throws Exception {
    boolean binds = rule == ThreadRule.CONTEXT_CURRENT && shifts.isEmpty();
    if (binds && !RoleThread.isCleaner() && !Mutant.on("gate.let-through")) {
      return bound(body); // whatever its role is
    }
    Role role = Role.current();
    return switch (Mutant.on("gate.let-through") ? Way.DIRECT : decide(role)) {
      case DIRECT -> Task.nullable(body.run());
      case LOCKED -> locked(body);
      case BIND -> bound(body);
      case SHIFT -> shifted(role, operation, body);
      case REFUSE -> throw refused(role, operation);
    };
  }

  final EngineException failed(String operation, Exception checked) {
    return new EngineException(engine, operation + " failed: " + checked, checked);
  }

  /**
   * Makes the call without waiting for an owner: if it has to shift, the completion comes from the
   * owner's thread, and the body runs in a task of its own. A task or foreign thread parks while
   * the owner's queue is full; for other roles the completion fails then.
   */
  public final <T extends @Nullable Object> Completion<T> submit(
      String operation, TaskBody<T> body) {
    Role role = Role.current();
    if (decide(role) == Way.SHIFT) {
      Owner to = Objects.requireNonNull(owner);
      TaskBody<T> guarded = () -> atOwner(operation, body);
      return role.mayWait() ? to.call(guarded) : to.tryCall(guarded);
    }
    try {
      return Completion.completed(call(operation, body));
    } catch (RuntimeException failure) {
      return Completion.failed(failure);
    }
  }

  private <T extends @Nullable Object> T shifted(Role role, String operation, TaskBody<T> body)
      throws Exception {
    if (!role.mayWait()) {
      throw new IllegalStateException(
          "engine '"
              + engine
              + "': "
              + operation
              + " from a "
              + role
              + " would wait for another owner, which may wait for it: use submit(...)");
    }
    return Objects.requireNonNull(owner).callLent(() -> atOwner(operation, body));
  }

  /** On the owner's thread the decision is made again, and is never SHIFT there. */
  private <T extends @Nullable Object> T atOwner(String operation, TaskBody<T> body)
      throws Exception {
    return switch (atHome()) {
      case DIRECT -> Task.nullable(body.run());
      case LOCKED -> locked(body);
      case BIND -> bound(body);
      case SHIFT, REFUSE ->
          throw new IllegalStateException("'" + operation + "' shifted to its own thread");
    };
  }

  private <T extends @Nullable Object> T locked(TaskBody<T> body) throws Exception {
    lock.lock();
    try {
      return Task.nullable(body.run());
    } finally {
      lock.unlock();
    }
  }

  private <T extends @Nullable Object> T bound(TaskBody<T> body) throws Exception {
    return bound(Objects.requireNonNull(binding), body);
  }

  /** Runs the body with the context current; restores what was, whatever happens. */
  static <T extends @Nullable Object> T bound(Binding binding, TaskBody<T> body) throws Exception {
    Task task = Task.ofVirtualThread();
    long previous = binding.bind();
    if (task != null) {
      task.enterBind();
    }
    try {
      return Task.nullable(body.run());
    } finally {
      if (task != null) {
        task.leaveBind();
      }
      if (!Mutant.on("gate.keeps-context")) {
        binding.restore(previous);
      }
    }
  }

  private EngineException refused(Role role, String operation) {
    return new EngineException(
        engine,
        operation
            + " is refused to a "
            + role
            + ": it may not enter, and there is no owner to "
            + "shift to",
        null);
  }

  private static Map<ThreadRule, Map<Role, Way>> table() {
    Map<ThreadRule, Map<Role, Way>> table = new EnumMap<>(ThreadRule.class);
    Way d = Way.DIRECT;
    Way l = Way.LOCKED;
    Way b = Way.BIND;
    Way s = Way.SHIFT;
    table.put(ThreadRule.ANY_THREAD, row(d, d, d, d, d, s));
    table.put(ThreadRule.ONE_AT_A_TIME, row(l, l, l, s, s, s));
    table.put(ThreadRule.CONTEXT_CURRENT, row(b, b, b, b, b, s));
    table.put(ThreadRule.OWNER_ONLY, row(s, s, s, s, s, s));
    return java.util.Collections.unmodifiableMap(table);
  }

  /** In the order of the table above. */
  private static Map<Role, Way> row(
      Way task, Way foreign, Way owner, Way deviceManager, Way comm, Way cleaner) {
    Map<Role, Way> row = new EnumMap<>(Role.class);
    row.put(Role.TASK, task);
    row.put(Role.FOREIGN, foreign);
    row.put(Role.OWNER, owner);
    row.put(Role.DEVICE_MANAGER, deviceManager);
    row.put(Role.COMM, comm);
    row.put(Role.CLEANER, cleaner);
    return java.util.Collections.unmodifiableMap(row);
  }
}
