package io.fairlead.device.spi;

/**
 * What a device is.
 *
 * @param memoryBytes the device's memory in bytes
 * @param workers processors that run kernels: worker threads of the host device, multiprocessors of
 *     a GPU
 * @param streamsWithSignals how many streams may have an outstanding signal before others' work may
 *     stick behind them; {@link Integer#MAX_VALUE} where there is no such limit
 */
public record DeviceInfo(
    int ordinal, String name, long memoryBytes, int workers, int streamsWithSignals) {}
