package io.fairlead.task;

/** Whoever comes first. */
class ForkingMixedContractTest extends ForkingContract {
  @Override
  Stealing stealing() {
    return Stealing.MIXED;
  }
}
