package io.fairlead.lab.canary.naming;

/** Named as it should be. */
class GoodContractTest extends ThingContract {}
