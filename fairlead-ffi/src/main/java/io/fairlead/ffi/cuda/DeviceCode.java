package io.fairlead.ffi.cuda;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * What an image says of itself before a driver is asked: for which devices it is, and which kernels
 * it has with parameters of which sizes. Read from PTX, from cubins and from fatbins of them. What
 * cannot be read (compressed parts, formats to come) is not known, and then the driver decides.
 *
 * <p>Machine code for {@code sm_XY} runs on devices of the same major number X whose minor number
 * is Y or higher; PTX for {@code sm_XY} on all from XY on. With the suffix {@code a} either is for
 * that one device, with {@code f} for that major number.
 *
 * <p>Immutable; any thread.
 */
public final class DeviceCode {
  private static final int FATBIN_MAGIC = 0xBA55ED50;
  private static final int ELF_MAGIC = 0x464C457F;

  // --- a fatbin: a header, then parts with a header each ----------------------------------------

  private static final int FATBIN_HEADER_BYTES = 6;
  private static final int FATBIN_BYTES = 8;
  private static final int PART_HEADER_BYTES = 4;
  private static final int PART_HEADER_BYTES_MIN = 48;
  private static final int PART_BYTES = 8;
  private static final int PART_COMPRESSED_BYTES = 16;
  private static final int PART_ARCHITECTURE = 28;
  private static final int PART_FLAGS = 40;
  private static final short KIND_PTX = 1;
  private static final short KIND_ELF = 2;
  private static final int FLAG_EXACT = 0x10_0000;
  private static final int FLAG_FAMILY = 0x20_0000;

  // --- a cubin: an ELF file of 64 bits ----------------------------------------------------------

  private static final int ELF_ABI_VERSION = 8;
  private static final int ELF_MACHINE = 18;
  private static final int ELF_SECTIONS = 40;
  private static final int ELF_FLAGS = 48;
  private static final int ELF_SECTION_BYTES = 58;
  private static final int ELF_SECTION_COUNT = 60;
  private static final int ELF_NAMES = 62;
  private static final short MACHINE_CUDA = 190;

  /** From this version on the flags have the architecture in their second byte. */
  private static final int ABI_OF_CUDA_13 = 8;

  private static final int SECTION_OFFSET = 24;
  private static final int SECTION_SIZE = 32;

  /** Each kernel has such a section, with its parameters; functions have none. */
  private static final String CONSTANTS = ".nv.constant0.";

  private static final String ATTRIBUTES = ".nv.info.";
  private static final int FORM_SIZED = 4;
  private static final int ATTRIBUTE_PARAMETER = 0x17;
  private static final int ATTRIBUTE_PARAMETER_BYTES = 0x19;
  private static final int PARAMETER_BYTES_SHIFT = 18;

  // --- PTX --------------------------------------------------------------------------------------

  private static final Pattern COMMENT = Pattern.compile("//[^\n]*|/\\*.*?\\*/", Pattern.DOTALL);
  private static final Pattern VERSION = Pattern.compile("^\\s*\\.version\\s+(\\d+\\.\\d+)");
  private static final Pattern TARGET = Pattern.compile("\\.target\\s+sm_(\\d+)([af]?)");
  private static final Pattern ENTRY =
      Pattern.compile("\\.entry\\s+([\\w$%]+)\\s*(?:\\(([^)]*)\\))?");
  private static final Pattern PARAMETER =
      Pattern.compile(
          "\\.param\\s+(?:\\.align\\s+\\d+\\s+)?\\.[bsuf](8|16|32|64)\\b[^\\[]*(?:\\[(\\d+)])?\\s*",
          Pattern.DOTALL);

  private enum Scope {
    COMPATIBLE(""),
    FAMILY("f"),
    EXACT("a");

    final String suffix;

    Scope(String suffix) {
      this.suffix = suffix;
    }
  }

  /**
   * Code for one architecture.
   *
   * @param kernels bytes of each parameter of each kernel, as far as that could be read
   */
  private record Part(
      boolean isPtx, int architecture, Scope scope, String version, Map<String, int[]> kernels) {

    boolean fits(int device) {
      return switch (scope) {
        case EXACT -> device == architecture;
        case FAMILY -> device >= architecture && device / 10 == architecture / 10;
        case COMPATIBLE -> device >= architecture && (isPtx || device / 10 == architecture / 10);
      };
    }

    @Override
    public String toString() {
      String name = "sm_" + architecture + scope.suffix;
      return isPtx ? "PTX" + version + " for " + name : name;
    }
  }

  private final List<Part> parts;

  private DeviceCode(List<Part> parts) {
    this.parts = parts;
  }

  // --- what it is -------------------------------------------------------------------------------

  /** Whether it could be read at all. */
  public boolean isKnown() {
    return !parts.isEmpty();
  }

  /**
   * Whether the device can run it, as far as is known.
   *
   * @param device its compute capability, times ten: 90
   */
  public boolean fits(int device) {
    return parts.isEmpty() || parts.stream().anyMatch(part -> part.fits(device));
  }

  /**
   * The kernels, with the bytes of each parameter; those of the part that this device runs. Empty
   * if that could not be read.
   */
  public Map<String, int[]> kernels(int device) {
    return parts.stream()
        .filter(part -> part.fits(device))
        .max(
            Comparator.comparingInt((Part part) -> part.isPtx ? 0 : 1)
                .thenComparingInt(Part::architecture))
        .map(Part::kernels)
        .orElse(Map.of());
  }

  /** {@code sm_80, sm_90, PTX 7.0 for sm_80}. */
  @Override
  public String toString() {
    return parts.isEmpty()
        ? "code of a form that is not known"
        : parts.stream().map(Part::toString).collect(Collectors.joining(", "));
  }

  // --- reading ----------------------------------------------------------------------------------

  /** Of a cubin, a fatbin, or PTX as bytes. */
  public static DeviceCode of(byte[] image) {
    ByteBuffer bytes = ByteBuffer.wrap(image).order(ByteOrder.LITTLE_ENDIAN);
    try {
      return switch (image.length < Integer.BYTES ? 0 : bytes.getInt(0)) {
        case FATBIN_MAGIC -> new DeviceCode(fatbin(bytes));
        case ELF_MAGIC -> new DeviceCode(List.of(cubin(bytes, Scope.COMPATIBLE)));
        default -> of(new String(image, StandardCharsets.UTF_8));
      };
    } catch (IndexOutOfBoundsException
        | IllegalArgumentException
        | ArithmeticException
        | BufferUnderflowException e) {
      return new DeviceCode(List.of()); // the driver says what is wrong with it
    }
  }

  /** Of PTX. */
  public static DeviceCode of(String text) {
    String ptx = COMMENT.matcher(text).replaceAll(" ");
    Matcher version = VERSION.matcher(ptx);
    Matcher target = TARGET.matcher(ptx);
    if (!version.find() || !target.find()) {
      return new DeviceCode(List.of());
    }
    Scope scope =
        switch (target.group(2)) {
          case "a" -> Scope.EXACT;
          case "f" -> Scope.FAMILY;
          default -> Scope.COMPATIBLE;
        };
    int architecture = Integer.parseInt(target.group(1));
    return new DeviceCode(
        List.of(new Part(true, architecture, scope, " " + version.group(1), entries(ptx))));
  }

  private static Map<String, int[]> entries(String ptx) {
    Map<String, int[]> kernels = new HashMap<>();
    Matcher entry = ENTRY.matcher(ptx);
    while (entry.find()) {
      int[] sizes = sizes(entry.group(2));
      if (sizes != null) {
        kernels.put(entry.group(1), sizes);
      }
    }
    return Map.copyOf(kernels);
  }

  /** Null where one of them has a type that is not known here. */
  private static int @Nullable [] sizes(@Nullable String parameters) {
    if (parameters == null || parameters.isBlank()) {
      return new int[0];
    }
    String[] each = parameters.split(",", -1);
    int[] sizes = new int[each.length];
    for (int i = 0; i < each.length; i++) {
      Matcher parameter = PARAMETER.matcher(each[i].strip());
      if (!parameter.matches()) {
        return null;
      }
      String count = parameter.group(2);
      sizes[i] =
          Integer.parseInt(parameter.group(1)) / 8 * (count == null ? 1 : Integer.parseInt(count));
    }
    return sizes;
  }

  private static List<Part> fatbin(ByteBuffer bytes) {
    List<Part> parts = new ArrayList<>();
    int at = bytes.getShort(FATBIN_HEADER_BYTES);
    long end = at + bytes.getLong(FATBIN_BYTES);
    while (at < end) {
      int header = bytes.getInt(at + PART_HEADER_BYTES);
      if (header < PART_HEADER_BYTES_MIN) {
        throw new IllegalArgumentException("a part without a header");
      }
      int size = Math.toIntExact(bytes.getLong(at + PART_BYTES));
      Part part = part(bytes, at, bytes.slice(at + header, size).order(ByteOrder.LITTLE_ENDIAN));
      if (part == null) {
        return List.of(); // of a kind that nobody knows here: it may be the one that fits
      }
      parts.add(part);
      at = Math.addExact(at, Math.addExact(header, size));
    }
    return List.copyOf(parts);
  }

  private static @Nullable Part part(ByteBuffer bytes, int at, ByteBuffer body) {
    short kind = bytes.getShort(at);
    if (kind != KIND_PTX && kind != KIND_ELF) {
      return null;
    }
    int flags = bytes.getInt(at + PART_FLAGS);
    Scope scope =
        (flags & FLAG_EXACT) != 0
            ? Scope.EXACT
            : (flags & FLAG_FAMILY) != 0 ? Scope.FAMILY : Scope.COMPATIBLE;
    int architecture = bytes.getInt(at + PART_ARCHITECTURE);
    boolean compressed = bytes.getInt(at + PART_COMPRESSED_BYTES) != 0;
    Map<String, int[]> kernels =
        compressed ? Map.of() : kind == KIND_ELF ? cubin(body, scope).kernels : entries(text(body));
    return new Part(kind == KIND_PTX, architecture, scope, "", kernels);
  }

  private static String text(ByteBuffer body) {
    byte[] text = new byte[body.remaining()];
    body.get(0, text);
    return COMMENT.matcher(new String(text, StandardCharsets.UTF_8)).replaceAll(" ");
  }

  // --- cubins -----------------------------------------------------------------------------------

  private static Part cubin(ByteBuffer elf, Scope scope) {
    if (elf.getInt(0) != ELF_MAGIC || elf.getShort(ELF_MACHINE) != MACHINE_CUDA) {
      throw new IllegalArgumentException("no cubin");
    }
    int flags = elf.getInt(ELF_FLAGS);
    int architecture = (elf.get(ELF_ABI_VERSION) >= ABI_OF_CUDA_13 ? flags >> 8 : flags) & 0xFF;
    Map<String, ByteBuffer> sections = sections(elf);
    Map<String, int[]> kernels = new HashMap<>();
    for (String name : sections.keySet()) {
      if (name.startsWith(CONSTANTS)) {
        String kernel = name.substring(CONSTANTS.length());
        int[] sizes = sizes(sections.get(ATTRIBUTES + kernel));
        if (sizes != null) {
          kernels.put(kernel, sizes);
        }
      }
    }
    return new Part(false, architecture, scope, "", Map.copyOf(kernels));
  }

  private static Map<String, ByteBuffer> sections(ByteBuffer elf) {
    int table = Math.toIntExact(elf.getLong(ELF_SECTIONS));
    int bytes = elf.getShort(ELF_SECTION_BYTES);
    ByteBuffer names = section(elf, table + bytes * elf.getShort(ELF_NAMES));
    Map<String, ByteBuffer> found = new HashMap<>();
    for (int i = 0; i < elf.getShort(ELF_SECTION_COUNT); i++) {
      int at = table + i * bytes;
      String name = name(names, elf.getInt(at));
      if (name.startsWith(CONSTANTS)) {
        found.put(name, names);
      } else if (name.startsWith(ATTRIBUTES)) {
        found.put(name, section(elf, at));
      }
    }
    return found;
  }

  private static ByteBuffer section(ByteBuffer elf, int header) {
    int offset = Math.toIntExact(elf.getLong(header + SECTION_OFFSET));
    int size = Math.toIntExact(elf.getLong(header + SECTION_SIZE));
    return elf.slice(offset, size).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static String name(ByteBuffer names, int begin) {
    int end = begin;
    while (names.get(end) != 0) {
      end++;
    }
    byte[] name = new byte[end - begin];
    names.get(begin, name);
    return new String(name, StandardCharsets.UTF_8);
  }

  /**
   * A kernel's attributes are one after the other: a form, a number, and two bytes of value or of
   * length. There is one for each parameter, in no order, and one for the bytes of all, which tells
   * whether all were understood.
   */
  private static int @Nullable [] sizes(@Nullable ByteBuffer attributes) {
    if (attributes == null) {
      return null;
    }
    Map<Integer, Integer> found = new HashMap<>();
    int end = 0;
    int told = 0;
    for (int at = 0; at < attributes.limit(); ) {
      int attribute = attributes.get(at + 1) & 0xFF;
      int value = attributes.getShort(at + 2) & 0xFFFF;
      boolean sized = attributes.get(at) == FORM_SIZED;
      if (attribute == ATTRIBUTE_PARAMETER && sized) {
        int bytes = attributes.getInt(at + 12) >>> PARAMETER_BYTES_SHIFT;
        found.put(attributes.getShort(at + 8) & 0xFFFF, bytes);
        end = Math.max(end, (attributes.getShort(at + 10) & 0xFFFF) + bytes);
      } else if (attribute == ATTRIBUTE_PARAMETER_BYTES) {
        told = value;
      }
      at += 4 + (sized ? value : 0);
    }
    int[] sizes = new int[found.size()];
    Arrays.setAll(sizes, i -> found.getOrDefault(i, -1));
    boolean whole = end == told && Arrays.stream(sizes).allMatch(size -> size >= 0);
    return whole ? sizes : null;
  }
}
