package io.fairlead.cli;

import java.io.PrintWriter;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Writes how a command ended: a summary for a person, and JSON for programs where it was asked.
 *
 * @param out the standard output
 * @param err where the summary goes if something else is on {@code out}
 * @param json the file for the report; {@code -} is {@code out}, null for none
 */
public record ReportWriter(PrintWriter out, PrintWriter err, @Nullable String json) {
  /** The name of an output that goes to standard output. */
  private static final String STANDARD_OUTPUT = "-";

  /** Whether an output of that name, or null for none, goes to standard output. */
  public static boolean isStandardOutput(@Nullable Object name) {
    return name != null && name.toString().equals(STANDARD_OUTPUT);
  }

  /**
   * Writes. Blocks; any thread.
   *
   * @param resultOnOut whether the result is on the standard output
   * @param report for the JSON
   * @throws AtomicFile.UnwritableException if the report cannot be written
   */
  public void write(boolean resultOnOut, String summary, Map<String, @Nullable Object> report) {
    boolean jsonOnOut = isStandardOutput(json);
    PrintWriter person = jsonOnOut || resultOnOut ? err : out;
    person.print(summary);
    person.flush();
    String text = Json.text(report) + "\n";
    if (jsonOnOut) {
      out.print(text);
      out.flush();
    } else if (json != null) {
      AtomicFile.write(json, text);
    }
  }
}
