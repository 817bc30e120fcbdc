package io.fairlead.lab.canary.threadlocal;

import java.util.concurrent.ThreadLocalRandom;

/** Not a ThreadLocal, whatever its name. */
class RandomUser {
  int draw() {
    return ThreadLocalRandom.current().nextInt();
  }
}
