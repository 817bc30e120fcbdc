package io.fairlead.cli;

import io.fairlead.device.spi.DeviceInfo;
import io.fairlead.fault.FairleadException;
import io.fairlead.ffi.MpiLauncher;
import io.fairlead.memory.Device;
import io.fairlead.memory.RealMemory;
import io.fairlead.runtime.DriverReport;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.runtime.TransportReport;
import io.fairlead.solver.SparseSolver;
import io.fairlead.task.CarrierMode;
import io.fairlead.task.CarrierReport;
import io.fairlead.task.TaskConfig;
import io.fairlead.task.TaskRuntime;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;

/**
 * {@code fairlead doctor}: what is on in this place, why, and what to pass to change it. Finds out
 * only; whatever it finds, it has done its work.
 */
@Command(
    name = "doctor",
    description = "Says what is used here, why, and how to change it.",
    mixinStandardHelpOptions = true)
final class DoctorCommand implements Callable<Integer> {
  @Option(names = "--json", description = "Print JSON.")
  private boolean json;

  @Option(
      names = "--waits",
      description = "Try each waiting mode on each device: what the thread that waits uses.")
  private boolean waits;

  @CommandLine.Spec private @Nullable CommandSpec spec;

  DoctorCommand() {}

  /**
   * What was found out.
   *
   * @param affinity the processors that this process may use, as the system lists them, or null
   * @param carriers null if what was asked for cannot be had; refused then says why
   * @param wrongSetting which system property has a value that cannot be, in words, or null
   * @param kernels for each GPU the form in which it takes the solver's kernels, or why none
   * @param memory of each GPU, as its driver sees it
   * @param launchers of ranks on the path
   * @param trials of waiting modes, if they were asked for
   */
  private record Findings(
      int processors,
      @Nullable String affinity,
      @Nullable CarrierReport carriers,
      @Nullable String refused,
      @Nullable String wrongSetting,
      List<DriverReport> drivers,
      Map<String, String> kernels,
      Map<String, RealMemory> memory,
      List<TransportReport> transports,
      List<MpiLauncher> launchers,
      List<WaitTrial> trials) {}

  @Override
  public Integer call() {
    PrintWriter out = Objects.requireNonNull(spec).commandLine().getOut();
    Findings found = examine();
    if (json) {
      out.println(Json.text(map(found)));
    } else {
      lines(found).forEach(out::println);
    }
    out.flush();
    return ExitCode.OK;
  }

  private Findings examine() {
    CarrierReport carriers = null;
    String refused = null;
    try (TaskRuntime runtime = TaskRuntime.open(TaskConfig.from(System.getProperties()))) {
      carriers = runtime.carriers();
    } catch (IllegalStateException | IllegalArgumentException cannotBeHad) {
      refused = cannotBeHad.getMessage();
    }
    List<DriverReport> drivers = Fairlead.drivers();
    String wrong = wrongSetting();
    Map<String, String> kernels = new LinkedHashMap<>();
    Map<String, RealMemory> memory = new LinkedHashMap<>();
    look(drivers, kernels, memory);
    return new Findings(
        Runtime.getRuntime().availableProcessors(),
        Processors.affinity(),
        carriers,
        refused,
        wrong,
        drivers,
        kernels,
        memory,
        Fairlead.transports(),
        MpiLauncher.installed(),
        waits && wrong == null ? trials(drivers) : List.of());
  }

  private static @Nullable String wrongSetting() {
    try {
      FairleadConfig.fromSystem();
      return null;
    } catch (IllegalArgumentException wrong) {
      return wrong.getMessage();
    }
  }

  /** Opens each driver of GPUs: whether one works is known only then. */
  private static void look(
      List<DriverReport> drivers, Map<String, String> kernels, Map<String, RealMemory> memory) {
    for (DriverReport driver : drivers) {
      if (driver.available() && !driver.name().equals("host")) {
        look(driver.name(), kernels, memory);
      }
    }
  }

  private static void look(
      String driver, Map<String, String> kernels, Map<String, RealMemory> memory) {
    try (Fairlead fairlead = Fairlead.open(FairleadConfig.defaults().withDevice(driver))) {
      for (Device device : fairlead.devices()) {
        DeviceInfo info = device.info();
        String name =
            driver
                + " "
                + info.ordinal()
                + " ("
                + info.name()
                + ", "
                + info.features().architectureName()
                + ")";
        kernels.put(name, kernels(device));
        memory.put(name, device.realMemory());
      }
    } catch (FairleadException | IllegalStateException cannotBeOpened) {
      kernels.put(driver, "none: " + cannotBeOpened.getMessage());
    }
  }

  private static String kernels(Device device) {
    try {
      return SparseSolver.kernels(device);
    } catch (FairleadException refused) {
      return "none: " + refused.getMessage();
    }
  }

  private static List<WaitTrial> trials(List<DriverReport> drivers) {
    List<WaitTrial> trials = new ArrayList<>();
    for (DriverReport driver : drivers) {
      if (driver.available() && driver.devices() > 0) {
        addTrials(driver.name(), trials);
      }
    }
    return trials;
  }

  private static void addTrials(String driver, List<WaitTrial> trials) {
    try {
      trials.addAll(WaitTrial.on(driver));
    } catch (FairleadException | IllegalStateException cannotBeOpened) {
      // said where its kernels are
    }
  }

  private static String java() {
    return Runtime.version() + ", " + System.getProperty("java.vm.name");
  }

  private static String mode(CarrierReport report) {
    return report.mode().name().toLowerCase(Locale.ROOT);
  }

  // --- as JSON
  // ------------------------------------------------------------------------------------

  private static Map<String, @Nullable Object> map(Findings found) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("version", Version.number());
    map.put("java", java());
    map.put("processors", found.processors());
    map.put("affinity", found.affinity());
    map.put("carriers", carriers(found));
    if (found.wrongSetting() != null) {
      map.put("wrong_setting", found.wrongSetting());
    }
    map.put("drivers", found.drivers().stream().map(DoctorCommand::driver).toList());
    map.put("kernels", new LinkedHashMap<String, @Nullable Object>(found.kernels()));
    Map<String, @Nullable Object> memory = new LinkedHashMap<>();
    found.memory().forEach((gpu, bytes) -> memory.put(gpu, memory(bytes)));
    map.put("memory", memory);
    map.put("transports", found.transports().stream().map(DoctorCommand::transport).toList());
    map.put("launchers", found.launchers().stream().map(DoctorCommand::launcher).toList());
    if (!found.trials().isEmpty()) {
      map.put("waits", found.trials().stream().map(DoctorCommand::trial).toList());
    }
    return map;
  }

  private static Map<String, @Nullable Object> carriers(Findings found) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    CarrierReport report = found.carriers();
    if (report == null) {
      map.put("mode", null);
      map.put("why", found.refused());
    } else {
      map.put("mode", mode(report));
      map.put("why", report.why());
      map.put("flag", report.flag());
      map.put("count", report.carriers());
    }
    map.put(
        "differences", CarrierMode.differences().stream().map(DoctorCommand::difference).toList());
    return map;
  }

  private static Map<String, @Nullable Object> difference(CarrierMode.Difference each) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("what", each.what());
    map.put("own", each.own());
    map.put("jdk", each.jdk());
    return map;
  }

  private static Map<String, @Nullable Object> memory(RealMemory bytes) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("total", bytes.totalBytes());
    map.put("free", bytes.freeBytes());
    map.put("pool_unused", bytes.poolUnusedBytes());
    map.put("ours", bytes.oursBytes());
    map.put("others", bytes.othersBytes());
    return map;
  }

  private static Map<String, @Nullable Object> trial(WaitTrial trial) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("driver", trial.driver());
    map.put("mode", trial.mode().name().toLowerCase(Locale.ROOT));
    map.put("core", trial.core());
    map.put("as_said", trial.isAsSaid());
    return map;
  }

  private static Map<String, @Nullable Object> driver(DriverReport report) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("name", report.name());
    map.put("available", report.available());
    map.put("devices", report.devices());
    map.put(report.available() ? "version" : "why", report.text());
    return map;
  }

  private static Map<String, @Nullable Object> transport(TransportReport report) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("name", report.name());
    map.put("available", report.available());
    map.put(report.available() ? "version" : "why", report.text());
    return map;
  }

  private static Map<String, @Nullable Object> launcher(MpiLauncher launcher) {
    Map<String, @Nullable Object> map = new LinkedHashMap<>();
    map.put("version", launcher.version());
    map.put("command", launcher.command().toString());
    return map;
  }

  // --- for a person
  // -------------------------------------------------------------------------------

  private static List<String> lines(Findings found) {
    List<String> lines = new ArrayList<>();
    lines.add("fairlead    " + Version.number() + ", Java " + java());
    String mask = found.affinity();
    lines.add(
        "processors  " + found.processors() + (mask == null ? "" : " (may use " + mask + ")"));
    CarrierReport report = found.carriers();
    if (report == null) {
      lines.add("carriers    none (" + found.refused() + ")");
    } else {
      lines.add("carriers    " + mode(report) + " (" + report.why() + ")");
      lines.add("            for own ones: java " + report.flag());
    }
    if (found.wrongSetting() != null) {
      lines.add("setting     wrong: " + found.wrongSetting());
    }
    found.drivers().forEach(driver -> lines.add("driver      " + line(driver)));
    found.kernels().forEach((gpu, form) -> lines.add("kernels     " + gpu + ": " + form));
    found.memory().forEach((gpu, bytes) -> lines.add("memory      " + gpu + ": " + bytes.text()));
    found.transports().forEach(transport -> lines.add("transport   " + line(transport)));
    found
        .launchers()
        .forEach(each -> lines.add("launcher    " + each.command() + ": " + each.version()));
    if (found.launchers().isEmpty()) {
      lines.add(
          "launcher    none: install one to start ranks on several processes (Debian: openmpi-bin, or mpich)");
    }
    found
        .trials()
        .forEach(trial -> lines.add("waits       " + trial.driver() + ": " + trial.text()));
    lines.add("");
    lines.addAll(CarrierTable.lines(report == null ? null : report.mode()));
    return lines;
  }

  private static String line(TransportReport transport) {
    if (!transport.available()) {
      return transport.name() + ": not here: " + transport.text();
    }
    return transport.text().isEmpty()
        ? transport.name()
        : transport.name() + ": " + transport.text();
  }

  private static String line(DriverReport driver) {
    return driver.available()
        ? driver.name() + " " + driver.text() + ", devices: " + driver.devices()
        : driver.name() + ": not here: " + driver.text();
  }
}
