/** What runs, and where it would like to run. */
module io.fairlead.task {
  requires static org.jspecify;

// exports io.fairlead.task; // with its first class: javac refuses an empty package
// exports io.fairlead.fault; // with its first class: javac refuses an empty package
}
