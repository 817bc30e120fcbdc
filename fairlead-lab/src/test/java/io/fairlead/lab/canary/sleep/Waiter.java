package io.fairlead.lab.canary.sleep;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

class Waiter {
  boolean await(CountDownLatch latch) throws InterruptedException {
    return latch.await(1, TimeUnit.SECONDS);
  }
}
