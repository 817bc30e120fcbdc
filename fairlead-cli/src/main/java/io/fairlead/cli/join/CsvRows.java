package io.fairlead.cli.join;

import io.fairlead.solver.BadInputException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * The rows of a CSV file one after the other, as RFC 4180 has them: fields between commas; one in
 * quotes may have commas, line ends and doubled quotes in it; lines end with LF, CRLF or CR, the
 * last one also with the file. An empty line is no row. Text is UTF-8, with a byte order mark or
 * without.
 *
 * <p>Confined to one thread; blocks on the file.
 */
final class CsvRows implements AutoCloseable {
  private static final int BUFFER_BYTES = 1 << 16;
  private static final int END = -1;
  private static final byte[] UTF8_MARK = {(byte) 0xEF, (byte) 0xBB, (byte) 0xBF};

  private final Path file;
  private final InputStream in;
  private final byte[] buffer = new byte[BUFFER_BYTES];
  private int next;
  private int filled;

  /** The fields of the row, one after the other, without their quotes. */
  private byte[] text = new byte[256];

  private int length;
  private int[] ends = new int[16];
  private int fields;

  /** Where the row began; lines are counted from 1. */
  private long line;

  private long nextLine = 1;

  private CsvRows(Path file, InputStream in) {
    this.file = file;
    this.in = in;
  }

  /**
   * Opens a file.
   *
   * @throws BadInputException if there is none, or if it is clearly no text
   */
  static CsvRows open(Path file) {
    if (Files.isDirectory(file)) {
      throw new BadInputException(
          file, BadInputException.NO_LINE, "it is a folder; expected a CSV file");
    }
    try {
      CsvRows rows = new CsvRows(file, Files.newInputStream(file));
      rows.skipMark();
      return rows;
    } catch (NoSuchFileException missing) {
      throw new BadInputException(
          file, BadInputException.NO_LINE, "no such file; expected a CSV file");
    } catch (IOException failure) {
      throw unreadable(file, failure);
    }
  }

  private static BadInputException unreadable(Path file, IOException failure) {
    return new BadInputException(
        file, BadInputException.NO_LINE, "cannot be read: " + failure.getMessage());
  }

  /** Closes the file if it is none to read. */
  private void skipMark() throws IOException {
    boolean isText = false;
    try {
      fill();
      requireText();
      isText = true;
    } finally {
      if (!isText) {
        close();
      }
    }
    if (filled >= UTF8_MARK.length && Arrays.mismatch(UTF8_MARK, buffer) == UTF8_MARK.length) {
      next = UTF8_MARK.length;
    }
  }

  private void requireText() {
    if (startsWith(0x1F, 0x8B)) {
      throw bad(BadInputException.NO_LINE, "it is packed with gzip; unpack it first: gunzip -k");
    }
    if (startsWith(0xFF, 0xFE) || startsWith(0xFE, 0xFF)) {
      throw bad(
          BadInputException.NO_LINE, "it is UTF-16; expected UTF-8: iconv -f UTF-16 -t UTF-8");
    }
  }

  private boolean startsWith(int first, int second) {
    return filled >= 2 && (buffer[0] & 0xFF) == first && (buffer[1] & 0xFF) == second;
  }

  private void fill() throws IOException {
    next = 0;
    filled = Math.max(0, in.readNBytes(buffer, 0, BUFFER_BYTES));
  }

  // --- rows ---------------------------------------------------------------------------------

  /**
   * Moves on to the next row; false after the last.
   *
   * @throws BadInputException if its quotes are wrong
   */
  boolean next() {
    try {
      do {
        if (peek() == END) {
          return false;
        }
        readRow();
      } while (fields == 1 && length == 0 && !quoted);
      return true;
    } catch (IOException failure) {
      throw unreadable(file, failure);
    }
  }

  /** Whether the last field stood in quotes: an empty line has no field, {@code ""} is one. */
  private boolean quoted;

  private void readRow() throws IOException {
    line = nextLine;
    length = 0;
    fields = 0;
    int end;
    do {
      quoted = peek() == '"';
      end = quoted ? readQuoted() : readPlain();
      endField();
    } while (end == ',');
  }

  /** Reads a field, and what ends it: a comma, a line end or the end. */
  private int readPlain() throws IOException {
    while (true) {
      int c = take();
      if (c == ',' || c == END || isLineEnd(c)) {
        return c;
      }
      if (c == '"') {
        throw bad(
            line,
            "a quote inside of a field; put the whole field in quotes, and double those inside");
      }
      append(c);
    }
  }

  private int readQuoted() throws IOException {
    long begin = nextLine;
    take();
    while (true) {
      int c = take();
      if (c == END) {
        throw bad(begin, "a field in quotes that does not end; close its quotes");
      }
      if (c != '"') {
        nextLine += c == '\n' ? 1 : 0;
        append(c);
      } else if (peek() == '"') {
        append(take());
      } else {
        return endOfQuoted();
      }
    }
  }

  private int endOfQuoted() throws IOException {
    int c = take();
    if (c != ',' && c != END && !isLineEnd(c)) {
      throw bad(nextLine, "text after a closing quote; expected a comma or the end of the line");
    }
    return c;
  }

  private boolean isLineEnd(int c) throws IOException {
    if (c == '\r' && peek() == '\n') {
      take();
    }
    boolean ends = c == '\n' || c == '\r';
    nextLine += ends ? 1 : 0;
    return ends;
  }

  private int peek() throws IOException {
    if (next == filled) {
      fill();
    }
    return next == filled ? END : buffer[next] & 0xFF;
  }

  private int take() throws IOException {
    int c = peek();
    next += c == END ? 0 : 1;
    return c;
  }

  private void append(int c) {
    if (length == text.length) {
      text = Arrays.copyOf(text, 2 * length);
    }
    text[length++] = (byte) c;
  }

  private void endField() {
    if (fields == ends.length) {
      ends = Arrays.copyOf(ends, 2 * fields);
    }
    ends[fields++] = length;
  }

  // --- the row that was read ----------------------------------------------------------------

  /** The line on which the row begins. */
  long line() {
    return line;
  }

  int fields() {
    return fields;
  }

  /** The bytes of all fields; {@link #begin} and {@link #end} say which are whose. */
  byte[] bytes() {
    return text;
  }

  int begin(int field) {
    return field == 0 ? 0 : ends[field - 1];
  }

  int end(int field) {
    return ends[field];
  }

  /**
   * A field as text.
   *
   * @throws BadInputException if it is not UTF-8
   */
  String text(int field) {
    ByteBuffer bytes = ByteBuffer.wrap(text, begin(field), end(field) - begin(field));
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
    } catch (CharacterCodingException malformed) {
      throw bad(line, "field " + (field + 1) + " is not UTF-8; convert the file: iconv -t UTF-8");
    }
  }

  BadInputException bad(long line, String message) {
    return new BadInputException(file, line, message);
  }

  @Override
  public void close() {
    try {
      in.close();
    } catch (IOException late) {
      // of a file that was only read, and is read to its end, or has something worse to say
    }
  }
}
