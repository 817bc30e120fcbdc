package io.fairlead.lab.canary.layers.first;

/** Sees nobody. */
public class First {}
