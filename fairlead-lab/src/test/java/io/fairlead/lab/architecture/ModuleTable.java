package io.fairlead.lab.architecture;

import io.fairlead.lab.Repository;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * The table of modules in ARCHITECTURE.md: which module may see which. What the page says and what
 * the build enforces are one thing, so neither can drift from the other.
 *
 * @param mayRequire for each module by its short name ("task"), what its descriptor may require
 *     beside JDK modules; short names for our own. The lab is not in it: it sees everything.
 */
record ModuleTable(Map<String, Set<String>> mayRequire) {
  private static final Pattern ROW =
      Pattern.compile("\\| `fairlead-([a-z]+)` \\|.*\\| ([^|]*) \\|");
  private static final Pattern NAME = Pattern.compile("`([^`]+)`");

  static ModuleTable read() {
    return parse(Repository.read("ARCHITECTURE.md"));
  }

  static ModuleTable parse(String page) {
    Map<String, Set<String>> rows = new LinkedHashMap<>();
    for (String line : page.lines().toList()) {
      Matcher row = ROW.matcher(line);
      if (row.matches() && !row.group(2).equals("all")) {
        rows.put(row.group(1), names(row.group(2)));
      }
    }
    return new ModuleTable(rows);
  }

  private static Set<String> names(String cell) {
    Set<String> names = new HashSet<>();
    NAME.matcher(cell).results().forEach(name -> names.add(name.group(1)));
    return names;
  }

  List<String> modules() {
    return List.copyOf(mayRequire.keySet());
  }

  /** A module, what it may require, and what those may require. */
  Set<String> maySee(String module) {
    Set<String> seen = new HashSet<>();
    addAll(module, seen);
    return seen;
  }

  private void addAll(String module, Set<String> seen) {
    if (seen.add(module)) {
      mayRequire.getOrDefault(module, Set.of()).forEach(next -> addAll(next, seen));
    }
  }

  /** The full module names behind the short ones. */
  Set<String> requires(String module) {
    Stream<String> own = mayRequire.get(module).stream();
    return Set.copyOf(
        own.map(name -> mayRequire.containsKey(name) ? "io.fairlead." + name : name).toList());
  }
}
