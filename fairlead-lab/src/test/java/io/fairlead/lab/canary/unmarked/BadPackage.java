package io.fairlead.lab.canary.unmarked;

class BadPackage {}
