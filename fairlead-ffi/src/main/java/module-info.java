/** CUDA, MPI and UCX through java.lang.foreign; the only module with native access. */
module io.fairlead.ffi {
  requires transitive io.fairlead.device;
  requires transitive io.fairlead.comm;
  requires static org.jspecify;

  provides io.fairlead.comm.spi.TransportProvider with
      io.fairlead.ffi.MpiTransportProvider;
  provides io.fairlead.device.spi.DriverProvider with
      io.fairlead.ffi.CudaDriverProvider;
  provides io.fairlead.device.spi.OsThreads with
      io.fairlead.ffi.PosixOsThreads;

  exports io.fairlead.ffi;
}
