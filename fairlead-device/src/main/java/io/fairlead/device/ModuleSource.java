package io.fairlead.device;

import io.fairlead.device.spi.JavaKernel;
import io.fairlead.device.spi.ModuleImage;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * One module in as many forms as its author has; the driver takes the first image that it accepts
 * for the device: a binary, say, then source for others where there is a compiler, then PTX. One
 * declaration of a kernel fits all of them: {@link ModuleImage} says what a kernel gets in each.
 *
 * @param name shown in errors and reports
 * @param images in order of preference, at least one
 */
public record ModuleSource(String name, List<ModuleImage> images) {
  public ModuleSource {
    Objects.requireNonNull(name, "name");
    images = List.copyOf(images);
    if (images.isEmpty()) {
      throw new IllegalArgumentException("module " + name + " has no image; give at least one");
    }
  }

  /** Kernels that are Java code, for the host device. */
  public static ModuleSource java(String name, Map<String, JavaKernel> kernels) {
    return new ModuleSource(name, List.of(new ModuleImage.Java(kernels)));
  }

  /** This module with one more form, taken if the driver accepts none before it. */
  public ModuleSource or(ModuleImage image) {
    List<ModuleImage> more = new ArrayList<>(images);
    more.add(image);
    return new ModuleSource(name, more);
  }
}
