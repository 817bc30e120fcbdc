package io.fairlead.cli.bench;

import io.fairlead.comm.spi.Transport;
import io.fairlead.task.Role;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.concurrent.atomic.LongAdder;
import org.jspecify.annotations.Nullable;

/** Counts calls into transports by threads that must never make one. Any thread. */
final class CommWatch {
  private final LongAdder entries = new LongAdder();

  /** So many calls were made by managers of devices and by cleaners. */
  long entries() {
    return entries.sum();
  }

  /** The same transport, watched. */
  Transport around(Transport transport) {
    InvocationHandler watching =
        (proxy, method, arguments) -> {
          if (!method.isDefault() && isForbidden(Role.current()) && enters(method)) {
            entries.increment();
          }
          return invoke(method, transport, arguments);
        };
    return (Transport)
        Proxy.newProxyInstance(
            Transport.class.getClassLoader(), new Class<?>[] {Transport.class}, watching);
  }

  private static boolean isForbidden(Role role) {
    return role == Role.DEVICE_MANAGER || role == Role.CLEANER;
  }

  /** What only says what the transport is enters nothing. */
  private static boolean enters(Method method) {
    return switch (method.getName()) {
      case "name", "rank", "size", "threadLevel", "caps", "toString", "hashCode", "equals" -> false;
      default -> true;
    };
  }

  @SuppressWarnings("NullAway") // reflection takes and gives null where the method does
  private static @Nullable Object invoke(
      Method method, Transport transport, @Nullable Object @Nullable [] arguments)
      throws Throwable {
    try {
      return method.invoke(transport, arguments);
    } catch (InvocationTargetException failed) {
      throw failed.getTargetException();
    }
  }
}
