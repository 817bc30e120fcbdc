/** The fairlead command, its workloads and reports. */
module io.fairlead.cli {
  requires io.fairlead.runtime;
  requires io.fairlead.host;
  requires io.fairlead.ffi;
  requires io.fairlead.sim;
  requires io.fairlead.solver;
  requires info.picocli;
  requires java.logging;
  requires java.management;
  requires jdk.management;
  requires jdk.unsupported;
  requires static org.jspecify;

  // the benchmarks open transports by name
  uses io.fairlead.comm.spi.TransportProvider;

  // picocli fills the fields of the command classes.
  opens io.fairlead.cli to
      info.picocli;
  opens io.fairlead.cli.bench to
      info.picocli;
  opens io.fairlead.cli.join to
      info.picocli;
  opens io.fairlead.cli.torture to
      info.picocli;
}
