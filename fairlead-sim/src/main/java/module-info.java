/** Contract suites for drivers and transports. */
module io.fairlead.sim {
  requires transitive io.fairlead.device;
  requires transitive io.fairlead.comm;

  // Only the contract suites need these; whoever extends one brings them.
  requires static org.assertj.core;
  requires static org.junit.jupiter.api;
  requires static org.jspecify;

  exports io.fairlead.sim;
  exports io.fairlead.sim.remote;
}
