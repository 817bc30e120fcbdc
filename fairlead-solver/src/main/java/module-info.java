/** The sparse solver as a library: set up once, solve often. */
module io.fairlead.solver {
  requires transitive io.fairlead.runtime;
  requires static org.jspecify;

  exports io.fairlead.solver;
}
