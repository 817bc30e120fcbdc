/** The embedded device: real execution on the CPU under a GPU's rules. */
module io.fairlead.host {
  requires transitive io.fairlead.device;
  requires static org.jspecify;

// exports io.fairlead.host; // with its first class: javac refuses an empty package
}
