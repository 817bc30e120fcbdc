package io.fairlead.lab.canary.naming;

class BadImplementationTest extends ThingContract {}
