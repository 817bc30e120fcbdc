package io.fairlead.memory;

import io.fairlead.task.WaitHelp;

/** What tasks wait for that this package settles: nobody can help, but it is no stranger's. */
enum OwnWait implements WaitHelp {
  ROOM("memory of a device"),
  TURN("its turn to bring buffers back"),
  MOVE("a buffer that moves"),
  OTHERS("what others can give back of a device's memory");

  private final String what;

  OwnWait(String what) {
    this.what = what;
  }

  @Override
  public boolean poll() {
    return false;
  }

  @Override
  public boolean block(long nanos) {
    return false;
  }

  @Override
  public String what() {
    return what;
  }
}
