/** What runs, and where it would like to run. */
module io.fairlead.task {
  requires static java.instrument; // there whenever the agent is
  requires static org.jspecify;

  exports io.fairlead.task;
  exports io.fairlead.fault;
}
