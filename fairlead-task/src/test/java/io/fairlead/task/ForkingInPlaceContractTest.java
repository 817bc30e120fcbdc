package io.fairlead.task;

/** Nothing is taken but from those that wait. */
class ForkingInPlaceContractTest extends ForkingContract {
  @Override
  Stealing stealing() {
    return Stealing.NEVER;
  }
}
