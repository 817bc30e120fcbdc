package io.fairlead.host;

/** How to make one operation of a graph; an operation itself runs once and is forgotten. */
@FunctionalInterface
interface Recipe {
  /**
   * A new operation, for a stream of the recipe's context.
   *
   * @throws io.fairlead.device.spi.DriverException if it names memory that is not there
   */
  Operation make(HostStream stream);
}
