/** Messages between ranks; the transport SPI; the in-process transport. */
module io.fairlead.comm {
  requires transitive io.fairlead.memory;
  requires static org.jspecify;

  exports io.fairlead.comm;
  exports io.fairlead.comm.spi;

  uses io.fairlead.comm.spi.TransportProvider;

  provides io.fairlead.comm.spi.TransportProvider with
      io.fairlead.comm.inprocess.InProcessProvider;
}
