package io.fairlead.memory;

import io.fairlead.device.spi.Driver;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import org.jspecify.annotations.Nullable;

/** A driver with something of a test's around its calls. */
final class DriverAround {
  /** The call itself. */
  interface Call {
    @Nullable Object make() throws Throwable;
  }

  /** What happens in its place; most often it is made, and nothing else. */
  interface Around {
    @Nullable Object call(String name, Object[] arguments, Call call) throws Throwable;
  }

  private DriverAround() {}

  static Driver of(Driver driver, Around around) {
    return (Driver)
        Proxy.newProxyInstance(
            Driver.class.getClassLoader(),
            new Class<?>[] {Driver.class},
            (_, method, arguments) ->
                around.call(
                    method.getName(),
                    arguments,
                    () -> {
                      try {
                        return method.invoke(driver, arguments);
                      } catch (InvocationTargetException e) {
                        throw e.getCause();
                      }
                    }));
  }
}
