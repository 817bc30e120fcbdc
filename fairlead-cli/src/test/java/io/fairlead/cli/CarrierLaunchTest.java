package io.fairlead.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.task.CarrierAgent;
import io.fairlead.task.TaskRuntime;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.jar.Attributes;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.spi.ToolProvider;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.api.io.TempDir;

/** Which carriers each way of starting Java gives, and that the flag which is printed is right. */
@Timeout(300)
class CarrierLaunchTest {
  private static final String FOR_CLASS_PATH = "--add-opens java.base/java.lang=ALL-UNNAMED";
  private static final String FOR_MODULES = "--add-opens java.base/java.lang=io.fairlead.task";

  @TempDir Path folder;

  @Test
  void fromTheClassPath() throws Exception {
    String out = doctor(List.of(), classPath());
    assertThat(out).contains("carriers    jdk (auto: java.base does not open java.lang");
    assertThat(out).contains("for own ones: java " + FOR_CLASS_PATH);
    assertThat(doctor(words(FOR_CLASS_PATH), classPath())).contains("carriers    own");
  }

  @Test
  void fromTheModulePath() throws Exception {
    String out = doctor(List.of(), modulePath());
    assertThat(out).contains("carriers    jdk (auto: java.base does not open java.lang");
    assertThat(out).contains("for own ones: java " + FOR_MODULES);
    assertThat(doctor(words(FOR_MODULES), modulePath())).contains("carriers    own");
    // the other one's flag does not do
    assertThat(doctor(words(FOR_CLASS_PATH), modulePath())).contains("carriers    jdk");
  }

  @Test
  void whatCannotBeHadIsSaidAndIsNoFailure() throws Exception {
    assertThat(doctor(List.of("-Dfairlead.carriers=own"), classPath()))
        .contains("carriers    none (own carriers were asked for, but ")
        .contains("pass " + FOR_CLASS_PATH);
    assertThat(doctor(List.of("-Dfairlead.carriers=jdk"), classPath()))
        .contains("carriers    jdk (asked for)");
  }

  @Test
  void withTheAgent() throws Exception {
    String agent = "-javaagent:" + agentJar();
    assertThat(doctor(List.of(agent), classPath())).contains("carriers    own");
    assertThat(doctor(List.of(agent), modulePath())).contains("carriers    own");
  }

  @Test
  @EnabledIfSystemProperty(
      named = "fairlead.long",
      matches = "true",
      disabledReason = "makes a Java image; ./verify --long does")
  void fromAJlinkImage() throws Exception {
    Path source = folder.resolve("user");
    Files.createDirectories(source.resolve("app"));
    Files.writeString(
        source.resolve("module-info.java"), "module user { requires io.fairlead.task; }");
    Files.writeString(
        source.resolve("app/Main.java"),
        """
        package app;
        import io.fairlead.task.*;
        public class Main {
          public static void main(String[] args) {
            try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.DEFAULT);
                TaskScope<Integer> scope = runtime.scope()) {
              scope.fork(() -> 42);
              System.out.println(runtime.carriers().mode() + " " + scope.join());
            }
          }
        }
        """);
    Path task = home(TaskRuntime.class);
    Path classes = folder.resolve("classes");
    tool(
        "javac",
        "--module-path",
        task.toString(),
        "-d",
        classes.toString(),
        source.resolve("module-info.java").toString(),
        source.resolve("app/Main.java").toString());
    Path image = folder.resolve("image");
    tool(
        "jlink",
        "--module-path",
        task + File.pathSeparator + classes,
        "--add-modules",
        "user",
        "--output",
        image.toString());
    String java = image.resolve("bin/java").toString();
    assertThat(run(List.of(java, "-m", "user/app.Main"))).contains("JDK [42]");
    List<String> opened = new ArrayList<>(List.of(java));
    opened.addAll(words(FOR_MODULES));
    opened.addAll(List.of("-m", "user/app.Main"));
    assertThat(run(opened)).contains("OWN [42]");
  }

  private static void tool(String name, String... arguments) {
    int code = ToolProvider.findFirst(name).orElseThrow().run(System.out, System.err, arguments);
    assertThat(code).as(name).isZero();
  }

  // --- starting

  private static String doctor(List<String> options, List<String> path) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"));
    command.addAll(options);
    command.addAll(path);
    command.add("doctor");
    return run(command);
  }

  private static String run(List<String> command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    process.getOutputStream().close();
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    assertThat(process.waitFor()).as(out).isZero();
    return out;
  }

  private static List<String> words(String flag) {
    return Arrays.asList(flag.split(" ", -1));
  }

  private static List<String> classPath() {
    return List.of("-cp", System.getProperty("java.class.path"), Main.class.getName());
  }

  /** The class path's entries as modules, but for the tests and what only they need. */
  private static List<String> modulePath() {
    List<String> modules =
        Stream.of(System.getProperty("java.class.path").split(File.pathSeparator, -1))
            .filter(entry -> !entry.endsWith("test-classes"))
            .filter(entry -> !entry.toLowerCase(Locale.ROOT).contains("surefire"))
            .toList();
    return List.of(
        "--module-path",
        String.join(File.pathSeparator, modules),
        "--module",
        "io.fairlead.cli/" + Main.class.getName());
  }

  private static Path home(Class<?> type) throws URISyntaxException {
    return Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
  }

  /** As the build makes it: the module's classes, and the manifest that names the agent. */
  private Path agentJar() throws Exception {
    Path jar = folder.resolve("fairlead-task.jar");
    Path classes = home(CarrierAgent.class);
    if (!Files.isDirectory(classes)) {
      return classes;
    }
    Manifest manifest = new Manifest();
    manifest.getMainAttributes().put(Attributes.Name.MANIFEST_VERSION, "1.0");
    manifest.getMainAttributes().putValue("Premain-Class", CarrierAgent.class.getName());
    try (OutputStream out = Files.newOutputStream(jar);
        JarOutputStream entries = new JarOutputStream(out, manifest);
        Stream<Path> files = Files.walk(classes)) {
      for (Path file : files.filter(Files::isRegularFile).toList()) {
        String name = classes.relativize(file).toString().replace(File.separatorChar, '/');
        if (name.startsWith("META-INF/MANIFEST")) {
          continue;
        }
        entries.putNextEntry(new JarEntry(name));
        entries.write(Files.readAllBytes(file));
      }
    }
    return jar;
  }
}
