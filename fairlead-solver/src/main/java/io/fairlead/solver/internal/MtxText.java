package io.fairlead.solver.internal;

import io.fairlead.solver.BadInputException;
import io.fairlead.solver.internal.file.WholeFile;
import java.io.EOFException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PushbackInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.GZIPInputStream;
import java.util.zip.ZipException;

/**
 * The bytes of a Matrix Market file as lines and numbers, unpacked where they are gzip. Knows the
 * line it is on. One thread at a time.
 */
final class MtxText implements AutoCloseable {
  private static final int BUFFER_BYTES = 1 << 17;
  private static final int TOKEN_MAX = 400;
  private static final int QUOTE_MAX = 40;
  private static final int END = -1;
  private static final byte[] GZIP_MAGIC = {0x1f, (byte) 0x8b};

  private final Path file;
  private final long fileBytes;
  private final Counted raw;
  private final InputStream in;
  private final boolean packed;
  private final byte[] buffer = new byte[BUFFER_BYTES];
  private final byte[] token = new byte[TOKEN_MAX];
  private int position;
  private int limit;
  private int tokenLength;
  private long line = 1;

  /** Counts the bytes taken from the file. */
  private static final class Counted extends FilterInputStream {
    private long count;

    /** A pipe cannot tell; by asking, gzip finds out whether another packed part follows. */
    @Override
    public int available() {
      return 1;
    }

    Counted(InputStream in) {
      super(in);
    }

    @Override
    public int read() throws IOException {
      int b = super.read();
      count += b < 0 ? 0 : 1;
      return b;
    }

    @Override
    public int read(byte[] into, int offset, int length) throws IOException {
      int n = super.read(into, offset, length);
      count += Math.max(n, 0);
      return n;
    }
  }

  private MtxText(Path file, long fileBytes, Counted raw, InputStream in, boolean packed) {
    this.file = file;
    this.fileBytes = fileBytes;
    this.raw = raw;
    this.in = in;
    this.packed = packed;
  }

  static MtxText open(Path file) {
    if (Files.isDirectory(file)) {
      throw bad(file, BadInputException.NO_LINE, "is a directory; expected a Matrix Market file");
    }
    try {
      return openFile(file);
    } catch (NoSuchFileException e) {
      throw bad(file, BadInputException.NO_LINE, "no such file; expected a Matrix Market file");
    } catch (IOException e) {
      throw bad(
          file,
          BadInputException.NO_LINE,
          "cannot be read (" + WholeFile.reason(e) + "); expected a readable file");
    }
  }

  /** Opened once: what comes through a pipe comes once. */
  private static MtxText openFile(Path file) throws IOException {
    long fileBytes = Files.isRegularFile(file) ? Files.size(file) : 0;
    Counted raw = new Counted(Files.newInputStream(file));
    try {
      PushbackInputStream in = new PushbackInputStream(raw, GZIP_MAGIC.length);
      boolean packed = beginsAsGzip(in);
      InputStream text = packed ? new GZIPInputStream(in, BUFFER_BYTES) : in;
      return new MtxText(file, fileBytes, raw, text, packed);
    } catch (EOFException | ZipException e) {
      raw.close();
      throw bad(
          file,
          1,
          "the gzip header is broken; expected a whole .mtx.gz file: this one may be damaged");
    } catch (IOException e) {
      raw.close();
      throw e;
    }
  }

  private static boolean beginsAsGzip(PushbackInputStream in) throws IOException {
    byte[] first = in.readNBytes(GZIP_MAGIC.length);
    in.unread(first);
    return Arrays.equals(first, GZIP_MAGIC);
  }

  /** Whether opening it a second time gives the same bytes again. */
  static boolean canBeReadAgain(Path file) {
    return Files.isRegularFile(file);
  }

  private static BadInputException bad(Path file, long line, String message) {
    return new BadInputException(file, line, message);
  }

  Path file() {
    return file;
  }

  long line() {
    return line;
  }

  boolean packed() {
    return packed;
  }

  long fileBytes() {
    return fileBytes;
  }

  long bytesRead() {
    return raw.count;
  }

  BadInputException bad(String message) {
    return bad(file, line, message);
  }

  private boolean fill() {
    try {
      limit = Math.max(0, in.read(buffer, 0, buffer.length));
      position = 0;
      return limit > 0;
    } catch (EOFException e) {
      throw bad("the gzip data ends early; expected the rest of the file: copy it again");
    } catch (ZipException e) {
      throw bad(
          "the gzip data is corrupt ("
              + e.getMessage()
              + "); the file may be damaged: copy it again");
    } catch (IOException e) {
      throw bad("reading failed (" + WholeFile.reason(e) + "); expected a readable file");
    }
  }

  private int peek() {
    return position < limit || fill() ? buffer[position] : END;
  }

  /** Returns the rest of the line, without its end. */
  String restOfLine() {
    StringBuilder text = new StringBuilder();
    int b = peek();
    while (b != END && b != '\n') {
      if (text.length() < TOKEN_MAX) {
        text.append((char) (b & 0xff));
      }
      position++;
      b = peek();
    }
    endLine();
    int length = text.length();
    return length > 0 && text.charAt(length - 1) == '\r'
        ? text.substring(0, length - 1)
        : text.toString();
  }

  private void endLine() {
    if (peek() == '\n') {
      position++;
      line++;
    }
  }

  boolean atEnd() {
    return peek() == END;
  }

  boolean atComment() {
    return peek() == '%';
  }

  /** Skips blanks and empty lines; returns false at the end of the file. */
  boolean skipToContent() {
    while (true) {
      int b = peek();
      if (b == '\n') {
        line++;
      } else if (b == END || !isBlank(b)) {
        return b != END;
      }
      position++;
    }
  }

  private static boolean isBlank(int b) {
    return b == ' ' || b == '\t' || b == '\r';
  }

  private int skipBlanks() {
    int b = peek();
    while (isBlank(b)) {
      position++;
      b = peek();
    }
    return b;
  }

  /** Ends an entry's line, which has nothing more on it. */
  void requireLineEnd(String expected) {
    int b = skipBlanks();
    if (b != '\n' && b != END) {
      throw bad("'" + nextToken() + "' is too much on this line; expected " + expected);
    }
    endLine();
  }

  /**
   * Returns the next whole number of the line, or {@link Long#MAX_VALUE} for one that is larger.
   */
  long nextLong(String what, String expected) {
    int b = skipBlanks();
    boolean negative = b == '-';
    if (negative || b == '+') {
      position++;
      b = peek();
    }
    if (!isDigit(b)) {
      throw bad(quoteFrom(negative ? "-" : "") + " for " + what + "; expected " + expected);
    }
    long value = 0;
    while (isDigit(b)) {
      value = value > Long.MAX_VALUE / 10 - 1 ? Long.MAX_VALUE : value * 10 + (b - '0');
      position++;
      b = peek();
    }
    if (b != END && b != '\n' && !isBlank(b)) {
      throw bad(
          "'"
              + (negative ? "-" : "")
              + value
              + nextToken()
              + "' for "
              + what
              + "; expected "
              + expected);
    }
    return negative ? -value : value;
  }

  private static boolean isDigit(int b) {
    return b >= '0' && b <= '9';
  }

  private String quoteFrom(String prefix) {
    String rest = nextToken();
    return prefix.isEmpty() && rest.isEmpty() ? "nothing" : "'" + prefix + rest + "'";
  }

  /** Returns the token at the position, cut to a length fit for a message. */
  private String nextToken() {
    takeToken();
    int length = Math.min(tokenLength, QUOTE_MAX);
    String text = new String(token, 0, length, StandardCharsets.ISO_8859_1);
    return printable(text) + (tokenLength > length ? "…" : "");
  }

  static String printable(String text) {
    return text.replaceAll("[^ -~…]", "?");
  }

  private void takeToken() {
    tokenLength = 0;
    int b = peek();
    while (b != END && b != '\n' && !isBlank(b)) {
      if (tokenLength < TOKEN_MAX) {
        token[tokenLength++] = (byte) b;
      }
      position++;
      b = peek();
    }
  }

  /** Returns the next real number of the line, correctly rounded and finite. */
  double nextDouble() {
    int b = skipBlanks();
    takeToken();
    double value = b == END || b == '\n' ? missingValue() : fastDouble();
    return Double.isNaN(value) ? slowDouble() : value;
  }

  private double missingValue() {
    throw bad("no value on this line; expected a real number");
  }

  /** Reads {@code [sign] digits [. digits] [e [sign] digits]}; NaN where that is not enough. */
  private double fastDouble() {
    int at = 0;
    int end = tokenLength;
    boolean negative = token[0] == '-';
    if (negative || token[0] == '+') {
      at++;
    }
    long digits = 0;
    int firstDigit = at;
    while (at < end && isDigit(token[at])) {
      digits = digits * 10 + (token[at++] - '0');
    }
    int count = at - firstDigit;
    int exponent = 0;
    if (at < end && token[at] == '.') {
      int firstDecimal = ++at;
      while (at < end && isDigit(token[at])) {
        digits = digits * 10 + (token[at++] - '0');
      }
      exponent = firstDecimal - at;
      count += at - firstDecimal;
    }
    if (count == 0 || count > 18) {
      return Decimal.UNDECIDED;
    }
    if (at < end) {
      int scale = exponentAt(at, end);
      if (scale == Integer.MIN_VALUE) {
        return Decimal.UNDECIDED;
      }
      exponent += scale;
    }
    double value = Decimal.value(digits, exponent);
    return negative ? -value : value;
  }

  private int exponentAt(int start, int end) {
    int at = start;
    if (token[at] != 'e' && token[at] != 'E') {
      return Integer.MIN_VALUE;
    }
    at++;
    boolean negative = at < end && token[at] == '-';
    if (negative || (at < end && token[at] == '+')) {
      at++;
    }
    int value = 0;
    if (at == end || end - at > 4) {
      return Integer.MIN_VALUE;
    }
    while (at < end && isDigit(token[at])) {
      value = value * 10 + (token[at++] - '0');
    }
    return at < end ? Integer.MIN_VALUE : negative ? -value : value;
  }

  private double slowDouble() {
    String text = new String(token, 0, tokenLength, StandardCharsets.ISO_8859_1);
    if (!text.matches("[+-]?(\\d+\\.?\\d*|\\.\\d+)([eE][+-]?\\d+)?")) {
      throw bad(notANumber(text));
    }
    double value = Double.parseDouble(text);
    if (Double.isInfinite(value)) {
      throw bad(shorten(text) + " is beyond the largest double; expected a finite real number");
    }
    return value;
  }

  private static String notANumber(String text) {
    boolean special = text.matches("(?i)[+-]?(nan|inf|infinity)");
    return special
        ? shorten(text) + " is not a finite number; expected a real number"
        : shorten(text) + " is not a number; expected a real number";
  }

  private static String shorten(String text) {
    return "'"
        + printable(text.length() > QUOTE_MAX ? text.substring(0, QUOTE_MAX) + "…" : text)
        + "'";
  }

  @Override
  public void close() {
    try {
      in.close();
    } catch (IOException e) {
      throw bad("closing failed (" + WholeFile.reason(e) + "); expected a readable file");
    }
  }
}
