package io.fairlead.ffi.posix;

/** What all calls of native functions have in common. No state; any thread. */
public final class ForeignCall {
  private ForeignCall() {}

  /**
   * For what a downcall handle threw: it declares Throwable, but throws nothing checked.
   *
   * @param function in the library's words
   * @return an error to be thrown, if {@code e} is neither unchecked nor an error
   */
  public static AssertionError unexpected(String function, Throwable e) {
    if (e instanceof RuntimeException unchecked) {
      throw unchecked;
    }
    if (e instanceof Error error) {
      throw error;
    }
    return new AssertionError(function + " threw, which no native function can", e);
  }
}
