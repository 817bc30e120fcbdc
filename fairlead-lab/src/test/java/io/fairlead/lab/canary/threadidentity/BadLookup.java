package io.fairlead.lab.canary.threadidentity;

class BadLookup {
  @SuppressWarnings("deprecation") // the old name of threadId is banned as well
  String all() {
    Thread thread = Thread.currentThread();
    return thread.getName() + thread.threadId() + thread.getId();
  }
}
