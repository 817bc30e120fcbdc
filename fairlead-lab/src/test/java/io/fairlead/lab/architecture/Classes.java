package io.fairlead.lab.architecture;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import io.fairlead.lab.Repository;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The compiled classes, read from the modules' target folders. */
final class Classes {
  private static final String CANARIES = "io.fairlead.lab.canary";
  private static final Pattern TARGET = Pattern.compile(".*/fairlead-([a-z]+)/target/[^/]+/.*");

  private Classes() {}

  /** The main classes of every module but the lab. */
  static JavaClasses published() {
    return read("classes", folder -> !folder.endsWith("fairlead-lab"));
  }

  /** The main classes of every module. */
  static JavaClasses main() {
    return read("classes", folder -> true);
  }

  /** The test classes of every module, and the race tests and benchmarks of the lab. */
  static JavaClasses tests() {
    JavaClasses tests = new ClassFileImporter().importPaths(testFolders());
    return tests.that(
        DescribedPredicate.describe(
            "are ours, and no canary",
            type -> !isGenerated(type) && !type.getPackageName().startsWith(CANARIES)));
  }

  /** Every class of one canary package. */
  static JavaClasses canary(String name) {
    JavaClasses all = new ClassFileImporter().importPackages(CANARIES + "." + name);
    return all.that(DescribedPredicate.describe("are ours", type -> !isGenerated(type)));
  }

  /** The short name of the module that a class was read from, or nothing. */
  static String moduleOf(JavaClass type) {
    return type.getSource()
        .map(source -> TARGET.matcher(source.getUri().toString()))
        .filter(Matcher::matches)
        .map(match -> match.group(1))
        .orElse("");
  }

  /** JMH writes packages of its own, jcstress writes classes beside the race test. */
  private static boolean isGenerated(JavaClass type) {
    return type.getPackageName().endsWith(".jmh_generated")
        || type.getName().matches(".*_jcstress(\\$.*)?");
  }

  private interface FolderFilter {
    boolean accept(Path module);
  }

  private static JavaClasses read(String kind, FolderFilter filter) {
    List<Path> folders =
        Repository.modules().stream()
            .filter(filter::accept)
            .map(module -> module.resolve("target").resolve(kind))
            .sorted(Comparator.naturalOrder())
            .toList();
    for (Path folder : folders) {
      if (!Files.isDirectory(folder)) {
        throw new IllegalStateException(
            folder + " is missing: run ./verify, or mvn -pl fairlead-lab -am verify");
      }
    }
    return new ClassFileImporter().importPaths(folders);
  }

  private static List<Path> testFolders() {
    return Repository.modules().stream()
        .flatMap(
            module ->
                module.endsWith("fairlead-lab")
                    ? List.of(target(module, "classes"), target(module, "test-classes")).stream()
                    : List.of(target(module, "test-classes")).stream())
        .filter(Files::isDirectory)
        .toList();
  }

  private static Path target(Path module, String kind) {
    return module.resolve("target").resolve(kind);
  }
}
