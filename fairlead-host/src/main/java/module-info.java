/** The embedded device: real execution on the CPU under a GPU's rules. */
module io.fairlead.host {
  requires transitive io.fairlead.device;
  requires static org.jspecify;

  uses io.fairlead.device.spi.OsThreads;

  provides io.fairlead.device.spi.DriverProvider with
      io.fairlead.host.HostDriverProvider;

  exports io.fairlead.host;
}
