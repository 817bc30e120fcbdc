package io.fairlead.lab.docs;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Java in the documentation, against the compiled source it is copied from.
 *
 * <p>A page says above each block where it comes from, and the source marks the part:
 *
 * <pre>
 * &lt;!-- snippet: fairlead-lab/src/test/java/io/fairlead/lab/docs/Example.java#solve --&gt;
 * ```java                                        // snippet:solve
 * ...                                            ...
 * ```                                            // end:solve
 * </pre>
 */
final class Snippets {
  private static final Pattern BLOCK =
      Pattern.compile(
          "(?:<!-- snippet: (?<file>\\S+)#(?<name>\\S+) -->\\n)?```java\\n(?<text>.*?)```",
          Pattern.DOTALL);

  private Snippets() {}

  /** The text of each Java block in a page. */
  static List<String> blocks(String page) {
    return BLOCK.matcher(page).results().map(block -> block.group("text")).toList();
  }

  /** What is wrong with the Java blocks of a page; each line says what to do. */
  static List<String> problems(String page, Function<String, String> source) {
    List<String> problems = new ArrayList<>();
    Matcher block = BLOCK.matcher(page);
    while (block.find()) {
      String where = "block at character " + block.start();
      if (block.group("file") == null) {
        problems.add(where + " names no source: put <!-- snippet: FILE#NAME --> above it");
      } else {
        String expected = part(source.apply(block.group("file")), block.group("name"));
        if (!expected.equals(block.group("text"))) {
          problems.add(where + " should read as its source does:\n" + expected);
        }
      }
    }
    return problems;
  }

  /** The lines between the two marks, without the indentation that they share. */
  private static String part(String source, String name) {
    StringBuilder lines = new StringBuilder();
    boolean inside = false;
    for (String line : source.lines().toList()) {
      if (line.strip().equals("// end:" + name)) {
        return lines.toString().stripTrailing().stripIndent() + '\n';
      }
      if (inside) {
        lines.append(line).append('\n');
      }
      inside |= line.strip().equals("// snippet:" + name);
    }
    return "(the source has no lines between // snippet:" + name + " and // end:" + name + ")";
  }
}
