package io.fairlead.memory;

import java.util.stream.Stream;

/** Finds the place in the user's program that called us. */
final class Sites {
  static final String UNKNOWN = "(place not recorded)";

  private static final StackWalker WALKER = StackWalker.getInstance();

  private Sites() {}

  /** The nearest frame outside the path's own packages. Any thread; about a microsecond. */
  static String caller() {
    return WALKER.walk(Sites::firstOutside);
  }

  private static String firstOutside(Stream<StackWalker.StackFrame> frames) {
    return frames
        .filter(frame -> !isOurs(frame.getClassName()))
        .findFirst()
        .map(frame -> frame.toStackTraceElement().toString())
        .orElse(UNKNOWN);
  }

  /** The classes that a user calls through on the way here; not their tests, nor our users. */
  private static boolean isOurs(String className) {
    return className.startsWith("java.")
        || isIn(className, Sites.class)
        || isIn(className, Device.class)
        || isIn(className, DeviceBuffer.class);
  }

  private static boolean isIn(String className, Class<?> type) {
    String name = type.getName();
    return className.equals(name) || className.startsWith(name + "$");
  }
}
