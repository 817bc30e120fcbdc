/** Messages between ranks; the transport SPI; the in-process transport. */
module io.fairlead.comm {
  requires transitive io.fairlead.memory;
  requires static org.jspecify;

// exports io.fairlead.comm; // with its first class: javac refuses an empty package
// exports io.fairlead.comm.spi; // with its first class: javac refuses an empty package
}
