/**
 * Messages between ranks; the transport SPI; the in-process transport; the protocol above a wire.
 */
module io.fairlead.comm {
  requires transitive io.fairlead.memory;
  requires static org.jspecify;

  exports io.fairlead.comm;
  exports io.fairlead.comm.spi;
  exports io.fairlead.comm.wire;

  uses io.fairlead.comm.spi.TransportProvider;

  provides io.fairlead.comm.spi.TransportProvider with
      io.fairlead.comm.inprocess.InProcessProvider;
}
