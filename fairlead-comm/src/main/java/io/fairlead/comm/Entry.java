package io.fairlead.comm;

import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.task.Role;

/**
 * Who may enter a transport: one table of caller × thread level × operation. No caller decides for
 * itself, and nothing else in this module asks who the caller is.
 *
 * <pre>
 * caller \ level        SINGLE, FUNNELED    SERIALIZED          MULTIPLE
 *                       call    progress    call    progress    call    progress
 * LOOP                  INLINE  INLINE      INLINE  INLINE      INLINE  INLINE
 * AFFINE                INLINE  INLINE      INLINE  INLINE      INLINE  INLINE
 * TASK                  SHIFT   REFUSE      INLINE  INLINE      INLINE  INLINE
 * FOREIGN               SHIFT   REFUSE      INLINE  INLINE      INLINE  INLINE
 * OWNER                 SHIFT   REFUSE      INLINE  INLINE      INLINE  INLINE
 * OTHER_LOOP            SHIFT   REFUSE      SHIFT   REFUSE      INLINE  INLINE
 * DEVICE_MANAGER        SHIFT   REFUSE      SHIFT   REFUSE      SHIFT   REFUSE
 * CLEANER               SHIFT   REFUSE      SHIFT   REFUSE      SHIFT   REFUSE
 * </pre>
 *
 * "Call" is every operation but PROGRESS. AFFINE is a task that runs on the communication thread's
 * own loop: the library sees the one thread that it was promised, and no call is handed over. At
 * SERIALIZED, INLINE takes the engine's turn, so callers that must not wait for a lock (other
 * loops) shift. Progress is never shifted: the loop makes it anyway.
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

  /** Who calls: {@link Role}, with the engine's own loop, and the tasks on it, told from others. */
  enum Caller {
    LOOP,
    AFFINE,
    TASK,
    FOREIGN,
    OWNER,
    OTHER_LOOP,
    DEVICE_MANAGER,
    CLEANER;

    static Caller of(Role role, boolean ownLoop) {
      return switch (role) {
        case TASK -> ownLoop ? AFFINE : TASK;
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
    COPY,
    EXPOSE,
    CANCEL,
    OPEN,
    CLOSE,
    PROGRESS
  }

  private static final int CALLERS = Caller.values().length;
  private static final int OPERATIONS = Operation.values().length;

  /** The table, in one row, since it is asked at every call. */
  private static final Way[] TABLE = table();

  private Entry() {}

  static Way way(ThreadLevel level, Caller caller, Operation operation) {
    return TABLE[index(level, caller, operation)];
  }

  @SuppressWarnings("EnumOrdinal") // the row is made and read in one process
  private static int index(ThreadLevel level, Caller caller, Operation operation) {
    return (level.ordinal() * CALLERS + caller.ordinal()) * OPERATIONS + operation.ordinal();
  }

  private static Way[] table() {
    Way[] table = new Way[ThreadLevel.values().length * CALLERS * OPERATIONS];
    for (ThreadLevel level : ThreadLevel.values()) {
      for (Caller caller : Caller.values()) {
        for (Operation operation : Operation.values()) {
          table[index(level, caller, operation)] =
              mayEnter(level, caller) ? Way.INLINE : outside(operation);
        }
      }
    }
    return table;
  }

  private static Way outside(Operation operation) {
    return switch (operation) {
      case SEND, RECEIVE, MESSAGE, COPY, EXPOSE, CANCEL, OPEN, CLOSE -> Way.SHIFT;
      case PROGRESS -> Way.REFUSE;
    };
  }

  private static boolean mayEnter(ThreadLevel level, Caller caller) {
    return switch (caller) {
      case LOOP, AFFINE -> true;
      case TASK, FOREIGN, OWNER -> level.compareTo(ThreadLevel.SERIALIZED) >= 0;
      case OTHER_LOOP -> level == ThreadLevel.MULTIPLE;
      case DEVICE_MANAGER, CLEANER -> false;
    };
  }
}
