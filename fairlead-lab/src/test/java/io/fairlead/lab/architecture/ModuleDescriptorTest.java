package io.fairlead.lab.architecture;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.lab.Repository;
import java.io.IOException;
import java.io.InputStream;
import java.lang.module.ModuleDescriptor;
import java.lang.module.ModuleDescriptor.Provides;
import java.lang.module.ModuleDescriptor.Requires;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Each module descriptor against the table in ARCHITECTURE.md. */
class ModuleDescriptorTest {
  private static final ModuleTable TABLE = ModuleTable.read();

  /** Read by everyone, needed by nobody to run. */
  private static final Set<String> ANNOTATIONS = Set.of("org.jspecify");

  static List<String> modules() {
    return TABLE.modules();
  }

  @Test
  void theTableHasEveryModuleInPathOrder() {
    List<String> inPom =
        Repository.read("pom.xml")
            .lines()
            .map(String::strip)
            .filter(line -> line.startsWith("<module>fairlead-"))
            .map(line -> line.replaceAll("</?module>|fairlead-", ""))
            .filter(module -> !module.equals("lab"))
            .toList();
    assertThat(TABLE.modules()).containsExactlyElementsOf(inPom);
  }

  @ParameterizedTest
  @MethodSource("modules")
  void requiresWhatTheTableSays(String module) throws IOException {
    assertThat(requires(module, name -> !isJdk(name)))
        .as("what %s requires, against the last column of ARCHITECTURE.md", module)
        .isEqualTo(TABLE.requires(module));
  }

  @ParameterizedTest
  @MethodSource("modules")
  void everythingTestsBringIsOptional(String module) throws IOException {
    assertThat(descriptor(module).requires())
        .filteredOn(requires -> requires.name().startsWith("org."))
        .filteredOn(requires -> !requires.name().equals("org.hdrhistogram"))
        .allSatisfy(
            requires -> assertThat(requires.modifiers()).contains(Requires.Modifier.STATIC));
  }

  @ParameterizedTest
  @MethodSource("modules")
  void exportsOnlyItsOwnPackagesAndNoInternals(String module) throws IOException {
    assertThat(descriptor(module).exports())
        .filteredOn(exports -> !exports.isQualified())
        .allSatisfy(
            exports ->
                assertThat(exports.source())
                    .matches("io\\.fairlead\\.(fault|" + module + ")(\\.[a-z]+)*")
                    .doesNotContain("internal"));
  }

  /** On the class path nobody reads a module descriptor. */
  @ParameterizedTest
  @MethodSource("modules")
  void providesTheSameOnModulePathAndClassPath(String module) throws IOException {
    Map<String, List<String>> onModulePath =
        descriptor(module).provides().stream()
            .collect(Collectors.toMap(Provides::service, Provides::providers));
    assertThat(serviceFiles(module))
        .as("META-INF/services of %s, against its module-info", module)
        .isEqualTo(onModulePath);
  }

  private static boolean isJdk(String name) {
    return name.startsWith("java.") || name.startsWith("jdk.");
  }

  private static Set<String> requires(String module, Predicate<String> which) throws IOException {
    return descriptor(module).requires().stream()
        .map(Requires::name)
        .filter(which)
        .filter(name -> !ANNOTATIONS.contains(name))
        .collect(Collectors.toSet());
  }

  private static ModuleDescriptor descriptor(String module) throws IOException {
    try (InputStream in = Files.newInputStream(classes(module).resolve("module-info.class"))) {
      return ModuleDescriptor.read(in);
    }
  }

  private static Map<String, List<String>> serviceFiles(String module) throws IOException {
    Map<String, List<String>> services = new HashMap<>();
    Path folder = classes(module).resolve("META-INF/services");
    if (Files.isDirectory(folder)) {
      try (Stream<Path> files = Files.list(folder)) {
        for (Path file : files.toList()) {
          services.put(file.getFileName().toString(), providers(file));
        }
      }
    }
    return services;
  }

  private static List<String> providers(Path file) throws IOException {
    return Files.readAllLines(file).stream()
        .map(line -> line.replaceAll("#.*", "").strip())
        .filter(line -> !line.isEmpty())
        .toList();
  }

  private static Path classes(String module) {
    return Repository.root().resolve("fairlead-" + module).resolve("target/classes");
  }
}
