package io.fairlead.comm;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.comm.Entry.Caller;
import io.fairlead.comm.Entry.Operation;
import io.fairlead.comm.Entry.Way;
import io.fairlead.comm.spi.ThreadLevel;
import io.fairlead.task.Role;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The table of who may enter, cell by cell, written out a second time (row 004.1). */
class EntryTest {

  /** Level, then call and progress for each caller: I inline, S shift, R refuse. */
  private static final List<String> CELLS =
      List.of(
          //           loop affine task foreign owner other-loop device-manager cleaner
          "SINGLE      II   II     SR   SR      SR    SR         SR             SR",
          "FUNNELED    II   II     SR   SR      SR    SR         SR             SR",
          "SERIALIZED  II   II     II   II      II    SR         SR             SR",
          "MULTIPLE    II   II     II   II      II    II         SR             SR");

  @Test
  void everyCellIsAsWritten_row004_1() {
    int seen = 0;
    for (String line : CELLS) {
      List<String> cells = List.of(line.split(" +"));
      ThreadLevel level = ThreadLevel.valueOf(cells.getFirst());
      int column = 1;
      for (Caller caller : Caller.values()) {
        String cell = cells.get(column++);
        for (Operation operation : Operation.values()) {
          char expected = cell.charAt(operation == Operation.PROGRESS ? 1 : 0);
          assertThat(Entry.way(level, caller, operation))
              .as("%s %s %s", level, caller, operation)
              .isEqualTo(way(expected));
          seen++;
        }
      }
    }
    assertThat(seen).isEqualTo(4 * 8 * 9);
  }

  private static Way way(char letter) {
    return switch (letter) {
      case 'I' -> Way.INLINE;
      case 'S' -> Way.SHIFT;
      case 'R' -> Way.REFUSE;
      default -> throw new IllegalArgumentException("no way " + letter);
    };
  }

  @Test
  void deviceManagersAndCleanersAlwaysShift_row004_2() {
    for (ThreadLevel level : ThreadLevel.values()) {
      for (Caller caller : List.of(Caller.DEVICE_MANAGER, Caller.CLEANER)) {
        for (Operation operation : Operation.values()) {
          assertThat(Entry.way(level, caller, operation)).isNotEqualTo(Way.INLINE);
        }
      }
    }
  }

  @Test
  void everyRoleIsACallerAndOnlyTheOwnLoopIsTheLoop() {
    for (Role role : Role.values()) {
      assertThat(Caller.of(role, false)).isNotEqualTo(Caller.LOOP);
    }
    assertThat(Caller.of(Role.COMM, true)).isEqualTo(Caller.LOOP);
    assertThat(Caller.of(Role.TASK, true)).isEqualTo(Caller.AFFINE);
    assertThat(Caller.of(Role.TASK, false)).isEqualTo(Caller.TASK);
    assertThat(Caller.of(Role.COMM, false)).isEqualTo(Caller.OTHER_LOOP);
    assertThat(Caller.of(Role.DEVICE_MANAGER, false)).isEqualTo(Caller.DEVICE_MANAGER);
    assertThat(Caller.of(Role.CLEANER, false)).isEqualTo(Caller.CLEANER);
  }
}
