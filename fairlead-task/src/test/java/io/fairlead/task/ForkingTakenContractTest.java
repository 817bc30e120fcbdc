package io.fairlead.task;

/** Nothing runs in place. */
class ForkingTakenContractTest extends ForkingContract {
  @Override
  Stealing stealing() {
    return Stealing.ALWAYS;
  }
}
