/** CUDA, MPI and UCX through java.lang.foreign; the only module with native access. */
module io.fairlead.ffi {
  requires transitive io.fairlead.device;
  requires transitive io.fairlead.comm;
  requires static org.jspecify;

// exports io.fairlead.ffi; // with its first class: javac refuses an empty package
}
