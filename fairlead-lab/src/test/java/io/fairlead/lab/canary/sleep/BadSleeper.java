package io.fairlead.lab.canary.sleep;

import java.util.concurrent.TimeUnit;

class BadSleeper {
  void thread() throws InterruptedException {
    Thread.sleep(1);
  }

  void unit() throws InterruptedException {
    TimeUnit.SECONDS.sleep(1);
  }
}
