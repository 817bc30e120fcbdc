/** The front door: open, configure, report, shut down. */
module io.fairlead.runtime {
  requires transitive io.fairlead.task;
  requires transitive io.fairlead.device;
  requires transitive io.fairlead.memory;
  requires transitive io.fairlead.comm;
  requires static org.jspecify;

  exports io.fairlead.runtime;

  uses io.fairlead.comm.spi.TransportProvider;
  uses io.fairlead.device.spi.DriverProvider;
}
