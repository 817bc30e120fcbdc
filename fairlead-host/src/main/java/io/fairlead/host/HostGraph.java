package io.fairlead.host;

import io.fairlead.host.pool.SpinLock;
import java.util.ArrayList;
import java.util.List;

/**
 * A graph: recipes in an order that its dependencies allow, which is the one in which they were
 * added. A snapshot is made of it for each executable.
 *
 * <pre>
 * field   | writer | reader | mode, guard
 * recipes | any    | any    | lock
 * </pre>
 */
final class HostGraph extends HandleTable.Entry {
  private final HostContext context;
  private final boolean captured;
  private final SpinLock lock = new SpinLock();
  private final List<Recipe> recipes = new ArrayList<>();

  private HostGraph(HostContext context, boolean captured) {
    this.context = context;
    this.captured = captured;
  }

  static HostGraph ofNodes(HostContext context) {
    return new HostGraph(context, false);
  }

  /** For what a stream is given meanwhile. */
  static HostGraph ofCapture(HostContext context) {
    return new HostGraph(context, true);
  }

  boolean isCaptured() {
    return captured;
  }

  /** Its number. */
  int add(Recipe recipe) {
    lock.lock();
    try {
      recipes.add(recipe);
      return recipes.size() - 1;
    } finally {
      lock.unlock();
    }
  }

  int size() {
    lock.lock();
    try {
      return recipes.size();
    } finally {
      lock.unlock();
    }
  }

  List<Recipe> snapshot() {
    lock.lock();
    try {
      return List.copyOf(recipes);
    } finally {
      lock.unlock();
    }
  }

  @Override
  HandleTable.Kind kind() {
    return HandleTable.Kind.GRAPH;
  }

  @Override
  HostContext context() {
    return context;
  }
}
