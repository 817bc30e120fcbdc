package io.fairlead.cli;

import java.util.Collection;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Writes the few shapes that the reports need: maps in their order, lists, strings, numbers,
 * booleans and null. Numbers are written so that reading them gives the same value; JSON has no NaN
 * or infinity, so those become null.
 */
public final class Json {
  private Json() {}

  /** Returns {@code value} as JSON text, indented by two spaces. */
  public static String text(@Nullable Object value) {
    StringBuilder out = new StringBuilder();
    write(value, "\n", out);
    return out.toString();
  }

  private static void write(@Nullable Object value, String indent, StringBuilder out) {
    switch (value) {
      case null -> out.append("null");
      case Map<?, ?> map -> writeMap(map, indent, out);
      case Collection<?> list -> writeList(list, indent, out);
      case Double number when !Double.isFinite(number) -> out.append("null");
      case Number number -> out.append(number);
      case Boolean flag -> out.append(flag);
      default -> writeString(value.toString(), out);
    }
  }

  private static void writeMap(Map<?, ?> map, String indent, StringBuilder out) {
    String inner = indent + "  ";
    String separator = "{";
    for (Map.Entry<?, ?> entry : map.entrySet()) {
      out.append(separator).append(inner);
      writeString(String.valueOf(entry.getKey()), out);
      out.append(": ");
      write(entry.getValue(), inner, out);
      separator = ",";
    }
    out.append(map.isEmpty() ? "{}" : indent + "}");
  }

  private static void writeList(Collection<?> list, String indent, StringBuilder out) {
    String inner = indent + "  ";
    String separator = "[";
    for (Object item : list) {
      out.append(separator).append(inner);
      write(item, inner, out);
      separator = ",";
    }
    out.append(list.isEmpty() ? "[]" : indent + "]");
  }

  private static void writeString(String text, StringBuilder out) {
    out.append('"');
    text.chars().forEach(c -> writeChar((char) c, out));
    out.append('"');
  }

  private static void writeChar(char c, StringBuilder out) {
    switch (c) {
      case '"' -> out.append("\\\"");
      case '\\' -> out.append("\\\\");
      case '\n' -> out.append("\\n");
      case '\r' -> out.append("\\r");
      case '\t' -> out.append("\\t");
      default -> {
        if (c < ' ') {
          out.append(String.format("\\u%04x", (int) c));
        } else {
          out.append(c);
        }
      }
    }
  }
}
