package io.fairlead.lab.canary.naming;

import org.openjdk.jmh.annotations.Benchmark;

public class BadBenchmark {
  @Benchmark
  public void measure() {}
}
