package io.fairlead.solver;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;

/** Matrices from files: one that is in the repository, and some that only lie beside it. */
final class TestData {
  private TestData() {}

  private static Path root() {
    return Path.of(System.getProperty("fairlead.root", "..")).toAbsolutePath().normalize();
  }

  /** A real power system of 1,138 rows. */
  static CsrMatrix bus1138() {
    return MatrixMarket.readMatrix(root().resolve("data/1138_bus.mtx")).matrix();
  }

  /** A file that may not be copied into the repository; the test is skipped, loudly, without it. */
  static Path beside(String name) {
    String named = System.getProperty("FAIRLEAD_DATA", System.getenv("FAIRLEAD_DATA"));
    Path folder = named != null ? Path.of(named) : root().resolve("../shared/data").normalize();
    Path file = folder.resolve(name);
    String wanted = "FAIRLEAD_DATA is to name a folder that holds " + name;
    boolean there = Files.exists(file);
    if (!there) {
      System.err.println("!! NOT RUN: " + wanted);
    }
    assumeTrue(there, wanted);
    return file;
  }
}
