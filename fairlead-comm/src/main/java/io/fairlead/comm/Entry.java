package io.fairlead.comm;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.task.Role;
import java.util.Collections;
import java.util.EnumMap;
import java.util.Map;
import java.util.Objects;

/**
 * Who may enter a transport: one table of caller × thread level × operation. No caller decides for
 * itself, and nothing else in this module asks who the caller is.
 *
 * <pre>
 * caller \ level        SINGLE, FUNNELED    SERIALIZED          MULTIPLE
 *                       call    progress    call    progress    call    progress
 * LOOP                  INLINE  INLINE      INLINE  INLINE      INLINE  INLINE
 * TASK                  SHIFT   REFUSE      INLINE  INLINE      INLINE  INLINE
 * FOREIGN               SHIFT   REFUSE      INLINE  INLINE      INLINE  INLINE
 * OWNER                 SHIFT   REFUSE      INLINE  INLINE      INLINE  INLINE
 * OTHER_LOOP            SHIFT   REFUSE      SHIFT   REFUSE      INLINE  INLINE
 * DEVICE_MANAGER        SHIFT   REFUSE      SHIFT   REFUSE      SHIFT   REFUSE
 * CLEANER               SHIFT   REFUSE      SHIFT   REFUSE      SHIFT   REFUSE
 * </pre>
 *
 * "Call" is every operation but PROGRESS. At SERIALIZED, INLINE takes the engine's turn, so callers
 * that must not wait for a lock (other loops) shift. Progress is never shifted: the loop makes it
 * anyway.
 */
final class Entry {

  /** How a call goes. */
  enum Way {
    /** Now, on the calling thread. */
    INLINE,
    /** On the communication thread, through its queue. */
    SHIFT,
    /** Not at all. */
    REFUSE
  }

  /** Who calls: {@link Role}, with the engine's own loop told from the loops of others. */
  enum Caller {
    LOOP,
    TASK,
    FOREIGN,
    OWNER,
    OTHER_LOOP,
    DEVICE_MANAGER,
    CLEANER;

    static Caller of(Role role, boolean ownLoop) {
      return switch (role) {
        case TASK -> TASK;
        case FOREIGN -> FOREIGN;
        case OWNER -> OWNER;
        case DEVICE_MANAGER -> DEVICE_MANAGER;
        case COMM -> ownLoop ? LOOP : OTHER_LOOP;
        case CLEANER -> CLEANER;
      };
    }
  }

  /** What is asked of the transport. */
  enum Operation {
    SEND,
    RECEIVE,
    MESSAGE,
    CANCEL,
    OPEN,
    CLOSE,
    PROGRESS
  }

  /** The table, for the engine and for the test that reads it cell by cell. */
  static final Map<ThreadLevel, Map<Caller, Map<Operation, Way>>> TABLE = table();

  private Entry() {}

  static Way way(ThreadLevel level, Caller caller, Operation operation) {
    Map<Caller, Map<Operation, Way>> callers = Objects.requireNonNull(TABLE.get(level));
    Map<Operation, Way> operations = Objects.requireNonNull(callers.get(caller));
    return Objects.requireNonNull(operations.get(operation));
  }

  private static Map<ThreadLevel, Map<Caller, Map<Operation, Way>>> table() {
    Map<ThreadLevel, Map<Caller, Map<Operation, Way>>> levels = new EnumMap<>(ThreadLevel.class);
    for (ThreadLevel level : ThreadLevel.values()) {
      Map<Caller, Map<Operation, Way>> callers = new EnumMap<>(Caller.class);
      for (Caller caller : Caller.values()) {
        callers.put(caller, row(mayEnter(level, caller)));
      }
      levels.put(level, Collections.unmodifiableMap(callers));
    }
    return Collections.unmodifiableMap(levels);
  }

  private static Map<Operation, Way> row(boolean mayEnter) {
    Map<Operation, Way> row = new EnumMap<>(Operation.class);
    for (Operation operation : Operation.values()) {
      row.put(operation, mayEnter ? Way.INLINE : outside(operation));
    }
    return Collections.unmodifiableMap(row);
  }

  private static Way outside(Operation operation) {
    return switch (operation) {
      case SEND, RECEIVE, MESSAGE, CANCEL, OPEN, CLOSE -> Way.SHIFT;
      case PROGRESS -> Way.REFUSE;
    };
  }

  private static boolean mayEnter(ThreadLevel level, Caller caller) {
    return switch (caller) {
      case LOOP -> true;
      case TASK, FOREIGN, OWNER -> level.compareTo(ThreadLevel.SERIALIZED) >= 0;
      case OTHER_LOOP -> level == ThreadLevel.MULTIPLE;
      case DEVICE_MANAGER, CLEANER -> false;
    };
  }
}
