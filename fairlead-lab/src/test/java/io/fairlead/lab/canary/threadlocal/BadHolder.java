package io.fairlead.lab.canary.threadlocal;

class BadHolder {
  static final ThreadLocal<String> NAME = new ThreadLocal<>();
  static final InheritableThreadLocal<String> INHERITED = new InheritableThreadLocal<>();
}
