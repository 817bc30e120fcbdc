/** Devices, contexts, streams, events and completions; the driver SPI. */
module io.fairlead.device {
  requires transitive io.fairlead.task;
  requires static org.jspecify;

  exports io.fairlead.device;
  exports io.fairlead.device.spi;
}
