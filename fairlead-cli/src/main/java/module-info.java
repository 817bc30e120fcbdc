/** The fairlead command, its workloads and reports. */
module io.fairlead.cli {
  requires io.fairlead.runtime;
  requires io.fairlead.host;
  requires io.fairlead.ffi;
  requires io.fairlead.sim;
  requires io.fairlead.solver;
  requires info.picocli;
  requires java.management;
  requires jdk.management;
  requires static org.jspecify;

  // picocli fills the fields of the command classes.
  opens io.fairlead.cli to
      info.picocli;
  opens io.fairlead.cli.bench to
      info.picocli;
}
