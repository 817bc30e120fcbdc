package io.fairlead.task;

import java.lang.instrument.Instrumentation;
import java.util.Map;
import java.util.Set;

/**
 * Opens {@code java.lang} to this module before the program begins: {@code java
 * -javaagent:fairlead-task.jar}, for programs that can name an agent but no {@code --add-opens}.
 */
public final class CarrierAgent {
  private CarrierAgent() {}

  /** Called by the JVM. */
  public static void premain(String arguments, Instrumentation instrumentation) {
    Set<Module> us = Set.of(CarrierAgent.class.getModule());
    instrumentation.redefineModule(
        Object.class.getModule(),
        Set.of(),
        Map.of(),
        Map.of(Object.class.getPackageName(), us),
        Set.of(),
        Map.of());
  }
}
