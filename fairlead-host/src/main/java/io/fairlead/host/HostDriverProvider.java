package io.fairlead.host;

import io.fairlead.device.spi.Driver;
import io.fairlead.device.spi.DriverProvider;
import java.util.Map;

/**
 * Provides the embedded device: real execution on the CPU under a GPU's rules. Always available.
 *
 * <p>Settings, all optional:
 *
 * <table>
 * <caption>Settings of the host driver</caption>
 * <tr><th>key</th><th>value</th><th>otherwise</th></tr>
 * <tr><td>{@code devices}</td><td>how many devices, each with its own workers and memory</td>
 *     <td>1</td></tr>
 * <tr><td>{@code workers}</td><td>worker threads of each device, up to 64</td>
 *     <td>the processors there are</td></tr>
 * <tr><td>{@code memory}</td><td>device memory of each in bytes; may end in k, m or g</td>
 *     <td>half of the machine's or container's memory, shared by the devices</td></tr>
 * <tr><td>{@code strict}</td><td>{@code true}: every call needs its context current, as on old GPU
 *     drivers</td><td>{@code false}: the calls that need one on a CUDA 580 driver</td></tr>
 * <tr><td>{@code notify}</td><td>{@code false}: listeners are not called; poll</td>
 *     <td>{@code true}</td></tr>
 * <tr><td>{@code stepped}</td><td>{@code true}: operations end only when {@link HostStepper} says
 *     so</td><td>{@code false}</td></tr>
 * <tr><td>{@code poison}</td><td>{@code true}: freed device memory is overwritten with 0xDB</td>
 *     <td>{@code false}</td></tr>
 * <tr><td>{@code spinMicros}</td><td>how long an idle worker looks for work before it parks; at
 *     most half of the processors spin, whatever is set</td>
 *     <td>50; 0 on a single processor</td></tr>
 * </table>
 */
public final class HostDriverProvider implements DriverProvider {
  /** Used by {@link java.util.ServiceLoader}; any thread. */
  public HostDriverProvider() {}

  @Override
  public String name() {
    return HostDriver.NAME;
  }

  /** Lowest: a machine with a GPU is taken for its GPU. */
  @Override
  public int preference() {
    return 0;
  }

  @Override
  public Probe probe() {
    return new Probe.Available(HostDriver.VERSION, 1);
  }

  @Override
  public Driver open(Map<String, String> settings) {
    return new HostDriver(HostConfig.of(settings));
  }
}
