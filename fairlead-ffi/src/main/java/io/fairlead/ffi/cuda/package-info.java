/**
 * CUDA's driver API, as Fairlead drives it.
 *
 * <p>Receives the calls of {@link io.fairlead.device.spi.Driver}. Hands them to the library that
 * was found at run time, and its status back as the interface tells it. Read {@code CudaDriver}
 * first, then the objects it hands out ({@code CudaContext}, {@code CudaStream}, {@code
 * CudaModule}); {@code CudaApi} is the library's functions, one method each. How a stream tells how
 * far it is stands in {@code CudaStream}, {@code Tickets} and {@code SignalEvents}.
 */
@NullMarked
package io.fairlead.ffi.cuda;

import org.jspecify.annotations.NullMarked;
