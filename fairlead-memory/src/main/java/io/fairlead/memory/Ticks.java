package io.fairlead.memory;

/**
 * A coarse clock of one device: moves when memory is asked for, so that what was used since then is
 * told from what was not.
 *
 * <p>Plain: a tick that is lost, or seen late, makes two uses of one age.
 */
final class Ticks {
  long now;

  void tick() {
    now++;
  }
}
