package io.fairlead.device;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;

/**
 * What a graph uses: its operands, each with all that the graph does to it, the modules of its
 * kernels, and whatever else must not be collected. Held from the first mention until {@link
 * #release}.
 *
 * <p>Written by one task; whoever the graph is handed to reads it. {@code release} by one thread,
 * once.
 */
final class Holdings {
  private final IdentityHashMap<Operand, Integer> places = new IdentityHashMap<>();
  private final List<Operand> operands = new ArrayList<>();
  private final List<Access> accesses = new ArrayList<>();
  private final List<Long> addresses = new ArrayList<>();
  private final List<KernelModule.Loaded> modules = new ArrayList<>();
  private final List<Object> kept = new ArrayList<>();

  /** Its address, which it keeps; or {@link Operand#AWAY}, and it is not held. */
  long hold(DeviceContext context, Operand operand, Access access) {
    Integer known = places.get(operand);
    if (known != null) {
      accesses.set(known, both(accesses.get(known), access));
      return addresses.get(known);
    }
    long address = operand.hold(context, this);
    if (address == Operand.AWAY) {
      return address;
    }
    places.put(operand, operands.size());
    operands.add(operand);
    accesses.add(access);
    addresses.add(address);
    return address;
  }

  private static Access both(Access one, Access other) {
    return one == other ? one : Access.READ_WRITE;
  }

  void hold(KernelModule.Loaded module) {
    if (!modules.contains(module)) {
      module.hold();
      modules.add(module);
    }
  }

  void keep(Object something) {
    kept.add(something);
  }

  /** With {@code last} behind them. */
  Operand[] operandsAnd(Operand last) {
    Operand[] all = operands.toArray(new Operand[operands.size() + 1]);
    all[operands.size()] = last;
    return all;
  }

  Access[] accessesAnd(Access last) {
    Access[] all = accesses.toArray(new Access[accesses.size() + 1]);
    all[accesses.size()] = last;
    return all;
  }

  /** All of it will be let go without anybody's help. */
  void leaving() {
    operands.forEach(operand -> operand.leaving(this));
  }

  /** Everything is let go, whatever one of them throws. */
  void release() {
    List<Runnable> ends = new ArrayList<>();
    operands.forEach(operand -> ends.add(() -> operand.letGo(this)));
    modules.forEach(module -> ends.add(module::letGo));
    RuntimeException failure = null;
    for (Runnable end : ends) {
      try {
        end.run();
      } catch (RuntimeException e) {
        failure = failure == null ? e : failure;
      }
    }
    forget();
    if (failure != null) {
      throw failure;
    }
  }

  private void forget() {
    places.clear();
    operands.clear();
    modules.clear();
    kept.clear();
  }
}
