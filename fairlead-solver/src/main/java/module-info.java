/** The sparse solver as a library: set up once, solve often. */
@SuppressWarnings("module") // the command is compiled after this, and is not to be seen from here
module io.fairlead.solver {
  requires transitive io.fairlead.runtime;
  requires static org.jspecify;

  exports io.fairlead.solver;
  exports io.fairlead.solver.internal.file to
      io.fairlead.cli;
}
