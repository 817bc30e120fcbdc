package io.fairlead.lab.scripts;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fairlead.lab.Repository;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * ./fairlead, in a copy of the repository that has its scripts, one source, and in place of the JDK
 * and Maven two scripts that write down how they were called.
 */
class LauncherTest {
  private static final int JVM_EXIT_CODE = 7;
  private static final int CANNOT_RUN = 69;

  @TempDir Path folder;
  private Path root;
  private Path jdk;
  private Path maven;
  private Path source;
  private Path builds;

  record Run(Process process, Path out, Path err) {}

  record Result(int exitCode, String out, String err) {}

  @BeforeEach
  void makeRepository() throws IOException {
    assumeTrue(Files.isExecutable(Path.of("/bin/bash")), "there is no /bin/bash");
    root = Files.createDirectories(folder.resolve("a repository"));
    copy("fairlead", "scripts/find-jdk.sh", "scripts/build.sh", "scripts/start-options.sh");
    write("pom.xml", "");
    write("fairlead-cli/pom.xml", "");
    source = write("fairlead-cli/src/main/java/Main.java", "");
    builds = folder.resolve("builds");
    jdk = fakeJdk("jdk", 25);
    maven = folder.resolve("maven");
    script(
        maven.resolve("bin/mvn"),
        """
        if [ "$1" = -version ]; then echo 'Apache Maven 3.9.9 (x)'; exit; fi
        echo "$*" >> '%s'
        [ ! -e fail ] || { echo '[ERROR] Main.java: what is this?'; echo '[INFO] BUILD FAILURE'; exit 1; }
        mkdir -p fairlead-cli/target/fast/dist/lib
        : > fairlead-cli/target/fast/dist/lib/fairlead-task.jar
        : > fairlead-cli/target/fast/fairlead-cli-0.1.0.jar
        echo '[INFO] Building Fairlead cli 0.1.0   [1/1]'
        echo '[INFO] BUILD SUCCESS'
        """
            .formatted(builds));
  }

  @Test
  void buildsOnFirstUseThenOnlyRuns() throws Exception {
    Result first = fairlead("solve", "a b.mtx");
    assertThat(first.exitCode).as(first.err).isEqualTo(JVM_EXIT_CODE);
    assertThat(first.out).contains("io.fairlead.cli/io.fairlead.cli.Main <solve> <a b.mtx>");
    assertThat(first.err).contains("Fairlead cli 0.1.0").contains("built");
    Result second = fairlead("--version");
    assertThat(second.err).isEmpty();
    assertThat(Files.readAllLines(builds)).hasSize(1);
  }

  @Test
  void everyJarLiesInTheDist() throws Exception {
    fairlead("--version");
    assertThat(root.resolve("target/dist/lib/fairlead-task.jar")).exists();
    assertThat(root.resolve("target/dist/lib/fairlead-cli-0.1.0.jar")).exists();
  }

  @Test
  void aNewerSourceIsBuiltAndOldDistsGo() throws Exception {
    for (int build = 1; build <= 5; build++) {
      fairlead("--version");
      Files.setLastModifiedTime(source, FileTime.from(Instant.now().plusSeconds(3600L * build)));
      Files.setLastModifiedTime(
          root.resolve("target/dist/stamp"), FileTime.from(Instant.now().minusSeconds(60)));
    }
    assertThat(Files.readAllLines(builds)).hasSize(5);
    try (Stream<Path> dists = Files.list(root.resolve("target/dists"))) {
      assertThat(dists.map(dist -> dist.getFileName().toString()))
          .containsExactlyInAnyOrder("3", "4", "5");
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"flock", "mkdir"})
  void severalStartedAtOnceBuildOnce(String lock) throws Exception {
    List<Run> ranks = new ArrayList<>();
    for (int rank = 0; rank < 4; rank++) {
      ranks.add(start(root, Map.of("FAIRLEAD_LOCK", lock), root.resolve("fairlead"), "solve"));
    }
    for (Run rank : ranks) {
      Result result = end(rank);
      assertThat(result.exitCode).as(result.err).isEqualTo(JVM_EXIT_CODE);
    }
    assertThat(Files.readAllLines(builds)).hasSize(1);
    assertThat(root.resolve("target/build.lock.d")).doesNotExist();
  }

  @Test
  void theLockOfADeadBuildIsTakenOver() throws Exception {
    Process dead = new ProcessBuilder("uname", "-n").start();
    String host = new String(dead.getInputStream().readAllBytes(), UTF_8).strip();
    assertThat(dead.waitFor(60, TimeUnit.SECONDS)).isTrue();
    write("target/build.lock.d/owner", host + " " + dead.pid() + "\n");
    Result result =
        end(start(root, Map.of("FAIRLEAD_LOCK", "mkdir"), root.resolve("fairlead"), "solve"));
    assertThat(result.exitCode).as(result.err).isEqualTo(JVM_EXIT_CODE);
    assertThat(result.err).contains("taking over the lock of a build that died");
  }

  @Test
  void aFailedBuildSaysWhatFailed() throws Exception {
    write("fail", "");
    Result result = fairlead("solve");
    assertThat(result.exitCode).isEqualTo(CANNOT_RUN);
    assertThat(result.err).contains("[ERROR] Main.java: what is this?").contains("build.log");
    assertThat(result.out).isEmpty();
  }

  @Test
  void aFolderThatCannotBeWrittenToIsNamed() throws Exception {
    write("target", "in the way");
    Result result = fairlead("solve");
    assertThat(result.exitCode).isEqualTo(CANNOT_RUN);
    assertThat(result.err).contains("cannot write to the folder " + root.resolve("target"));
    assertThat(result.err).doesNotContain("line ");
  }

  @ParameterizedTest
  @ValueSource(strings = {"flock", "mkdir"})
  void anInterruptedBuildSaysSo(String lock) throws Exception {
    assumeTrue(Files.isExecutable(Path.of("/usr/bin/setsid")), "there is no /usr/bin/setsid");
    Process asked = new ProcessBuilder("/bin/bash", "-c", "kill -INT $$; echo ignored").start();
    String answer = new String(asked.getInputStream().readAllBytes(), UTF_8);
    assumeTrue(answer.isEmpty(), "interrupts are ignored here, as in a background job");
    // As a terminal does it: to all of the group.
    script(
        maven.resolve("bin/mvn"),
        """
        if [ "$1" = -version ]; then echo 'Apache Maven 3.9.9 (x)'; exit; fi
        kill -INT 0
        exec sleep 60
        """);
    String command = root.resolve("fairlead").toString();
    Map<String, String> environment = Map.of("FAIRLEAD_LOCK", lock);
    Result result =
        end(start(root, environment, Path.of("/usr/bin/setsid"), "--wait", command, "solve"));
    assertThat(result.exitCode).as(result.err).isEqualTo(130);
    assertThat(result.err).contains("interrupted").doesNotContain("failed");
  }

  @Test
  void runsThroughALinkFromAnotherFolder() throws Exception {
    Path link = Files.createSymbolicLink(folder.resolve("fl"), root.resolve("fairlead"));
    Path linkToLink = Files.createSymbolicLink(folder.resolve("fl2"), Path.of("fl"));
    Path elsewhere = Files.createDirectory(folder.resolve("elsewhere"));
    for (Path command : List.of(link, linkToLink)) {
      Result result = end(start(elsewhere, Map.of(), command, "solve", "x.mtx"));
      assertThat(result.exitCode).as(result.err).isEqualTo(JVM_EXIT_CODE);
      assertThat(result.out).contains("in " + elsewhere.toRealPath());
    }
  }

  @Test
  void optionsForTheJvmArePassedOn() throws Exception {
    Map<String, String> options = Map.of("FAIRLEAD_JAVA_OPTS", "-Xmx1g -Da=b");
    Result result = end(start(root, options, root.resolve("fairlead"), "solve"));
    assertThat(result.out).contains("<-Xmx1g> <-Da=b>");
  }

  @Test
  void anOldJdkIsRefusedByName() throws Exception {
    jdk = fakeJdk("old", 17);
    Result result = fairlead("--version");
    assertThat(result.exitCode).isEqualTo(CANNOT_RUN);
    assertThat(result.err).contains("FAIRLEAD_JAVA_HOME is " + jdk).contains("is a JDK 17");
  }

  @Test
  void missingMavenIsNamed() throws Exception {
    Files.delete(maven.resolve("bin/mvn"));
    Map<String, String> path = Map.of("PATH", toolsWithoutMaven().toString());
    Result result = end(start(root, path, root.resolve("fairlead"), "--version"));
    assertThat(result.exitCode).isEqualTo(CANNOT_RUN);
    assertThat(result.err).contains("no Maven found").contains("MAVEN_HOME");
  }

  private Path toolsWithoutMaven() throws IOException {
    Path tools = folder.resolve("tools");
    List<String> names =
        List.of("bash", "cat", "env", "find", "mkdir", "readlink", "rm", "touch", "uname");
    for (String name : names) {
      String place = Files.exists(Path.of("/bin", name)) ? "/bin/" : "/usr/bin/";
      script(tools.resolve(name), "#!/bin/bash\nexec " + place + name + " \"$@\"\n");
    }
    return tools;
  }

  private Path fakeJdk(String name, int version) throws IOException {
    Path home = folder.resolve(name);
    String echo =
        "echo \"in $PWD:$(printf ' <%s>' \"$@\" | sed 's/ <--module> <\\([^>]*\\)>/ \\1/')\"";
    script(home.resolve("bin/java"), echo + "\nexit " + JVM_EXIT_CODE + "\n");
    script(home.resolve("bin/javac"), "");
    Files.writeString(home.resolve("release"), "A=\"b\"\nJAVA_VERSION=\"" + version + ".0.1\"\n");
    return home;
  }

  private Result fairlead(String... arguments) throws Exception {
    return end(start(root, Map.of(), root.resolve("fairlead"), arguments));
  }

  private Run start(Path workingFolder, Map<String, String> more, Path command, String... arguments)
      throws IOException {
    List<String> words = new ArrayList<>(List.of(command.toString()));
    words.addAll(List.of(arguments));
    ProcessBuilder builder = new ProcessBuilder(words).directory(workingFolder.toFile());
    Map<String, String> environment = builder.environment();
    environment.keySet().removeIf(name -> name.startsWith("FAIRLEAD_") || name.equals("JAVA_HOME"));
    environment.put("FAIRLEAD_JAVA_HOME", jdk.toString());
    environment.put("MAVEN_HOME", maven.toString());
    environment.putAll(more);
    Path out = Files.createTempFile(folder, "out", "");
    Path err = Files.createTempFile(folder, "err", "");
    builder.redirectOutput(out.toFile()).redirectError(err.toFile());
    return new Run(builder.start(), out, err);
  }

  private static Result end(Run run) throws Exception {
    boolean ended = run.process.waitFor(60, TimeUnit.SECONDS);
    if (!ended) {
      run.process.descendants().forEach(ProcessHandle::destroyForcibly);
      run.process.destroyForcibly();
    }
    String err = Files.readString(run.err);
    assertThat(ended).as("ended within a minute; so far it said %s", err).isTrue();
    return new Result(run.process.exitValue(), Files.readString(run.out), err);
  }

  private void copy(String... files) throws IOException {
    for (String file : files) {
      script(root.resolve(file), Repository.read(file));
    }
  }

  private Path write(String file, String text) throws IOException {
    Path path = root.resolve(file);
    Files.createDirectories(path.getParent());
    return Files.writeString(path, text);
  }

  private static void script(Path path, String text) throws IOException {
    Files.createDirectories(path.getParent());
    Files.writeString(path, text.startsWith("#") ? text : "#!/usr/bin/env bash\n" + text);
    Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rwxr-xr-x"));
  }
}
