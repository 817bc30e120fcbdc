package io.fairlead.lab.architecture;

import com.tngtech.archunit.core.domain.JavaClass;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.classfile.ClassFile;
import java.lang.classfile.ClassModel;
import java.lang.classfile.CodeElement;
import java.lang.classfile.CodeModel;
import java.lang.classfile.Instruction;
import java.lang.classfile.Label;
import java.lang.classfile.MethodModel;
import java.lang.classfile.Opcode;
import java.lang.classfile.constantpool.ClassEntry;
import java.lang.classfile.instruction.BranchInstruction;
import java.lang.classfile.instruction.ExceptionCatch;
import java.lang.classfile.instruction.InvokeDynamicInstruction;
import java.lang.classfile.instruction.InvokeInstruction;
import java.lang.classfile.instruction.LabelTarget;
import java.lang.classfile.instruction.LookupSwitchInstruction;
import java.lang.classfile.instruction.MonitorInstruction;
import java.lang.classfile.instruction.ReturnInstruction;
import java.lang.classfile.instruction.TableSwitchInstruction;
import java.lang.classfile.instruction.ThrowInstruction;
import java.lang.constant.DirectMethodHandleDesc;
import java.lang.reflect.AccessFlag;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * Which calls of the given classes are made with a monitor held, and which of them may end in
 * native code. Read from the byte code, since no rule library looks at monitors.
 *
 * <p>Native is a method handle invoked by a class that uses a Linker, and whatever is called on an
 * interface behind which natives lie. A call reaches all methods that may be meant by it: the one
 * named, those above that it inherits, those below that override it. What a method makes a lambda
 * of counts as called by it. Interfaces of the JDK are not followed.
 */
final class Monitors {
  /** What is called on these is native, whoever implements them. */
  private static final Set<String> NATIVE_INTERFACES =
      Set.of(
          "io/fairlead/task/Binding",
          "io/fairlead/device/spi/Driver",
          "io/fairlead/device/spi/OsThreads",
          "io/fairlead/comm/spi/Transport",
          "io/fairlead/comm/wire/Wire");

  private static final String LINKER = "java/lang/foreign/Linker";
  private static final String HANDLE = "java/lang/invoke/MethodHandle";
  private static final String NATIVE = "native code";

  private record Call(String target, boolean held) {}

  private record Type(String parent, List<String> interfaces) {}

  private final Map<String, Type> types = new HashMap<>();
  private final Map<String, Set<String>> children = new HashMap<>();

  /** By class and then by name and descriptor. */
  private final Map<String, Map<String, List<Call>>> methods = new HashMap<>();

  private final Set<String> reaching = new HashSet<>();

  Monitors(Collection<JavaClass> classes) {
    classes.forEach(type -> read(bytes(type)));
    markCallers();
  }

  /** Each call of the class that is made with a monitor held and may end in native code. */
  List<String> violations(JavaClass type) {
    String name = type.getName().replace('.', '/');
    Set<String> found = new TreeSet<>();
    methods
        .getOrDefault(name, Map.of())
        .forEach(
            (method, calls) ->
                calls.stream()
                    .filter(call -> call.held && isNative(call.target))
                    .forEach(call -> found.add(name + "." + method + " calls " + call.target)));
    return List.copyOf(found);
  }

  private static byte[] bytes(JavaClass type) {
    try {
      return Files.readAllBytes(Path.of(type.getSource().orElseThrow().getUri()));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  // --- reading ----------------------------------------------------------------------------------

  private void read(byte[] bytes) {
    ClassModel model = ClassFile.of().parse(bytes);
    String name = model.thisClass().asInternalName();
    String parent = model.superclass().map(ClassEntry::asInternalName).orElse("");
    List<String> interfaces = model.interfaces().stream().map(ClassEntry::asInternalName).toList();
    types.put(name, new Type(parent, interfaces));
    children.computeIfAbsent(parent, _ -> new HashSet<>()).add(name);
    interfaces.forEach(each -> children.computeIfAbsent(each, _ -> new HashSet<>()).add(name));
    boolean links = usesLinker(model);
    Map<String, List<Call>> own = new HashMap<>();
    for (MethodModel method : model.methods()) {
      String key = method.methodName().stringValue() + method.methodType().stringValue();
      boolean held = method.flags().has(AccessFlag.SYNCHRONIZED);
      own.put(key, method.code().map(code -> calls(code, held, links)).orElse(List.of()));
    }
    methods.put(name, own);
  }

  private static boolean usesLinker(ClassModel model) {
    for (var entry : model.constantPool()) {
      if (entry instanceof ClassEntry type && type.asInternalName().equals(LINKER)) {
        return true;
      }
    }
    return false;
  }

  private static List<Call> calls(CodeModel code, boolean whole, boolean links) {
    List<CodeElement> elements = code.elementList();
    int[] held = heldAt(elements);
    List<Call> calls = new ArrayList<>();
    for (int i = 0; i < elements.size(); i++) {
      boolean here = whole || held[i] > 0;
      switch (elements.get(i)) {
        case InvokeInstruction call -> calls.add(new Call(target(call, links), here));
        case InvokeDynamicInstruction made ->
            lambdas(made).forEach(body -> calls.add(new Call(body, here)));
        default -> {}
      }
    }
    return calls;
  }

  private static String target(InvokeInstruction call, boolean links) {
    String owner = call.owner().asInternalName();
    String name = call.name().stringValue();
    if (links && owner.equals(HANDLE) && name.startsWith("invoke")) {
      return NATIVE;
    }
    return NATIVE_INTERFACES.contains(owner)
        ? NATIVE
        : owner + "." + name + call.type().stringValue();
  }

  private static List<String> lambdas(InvokeDynamicInstruction made) {
    return made.bootstrapArgs().stream()
        .filter(DirectMethodHandleDesc.class::isInstance)
        .map(DirectMethodHandleDesc.class::cast)
        .map(Monitors::target)
        .toList();
  }

  private static String target(DirectMethodHandleDesc body) {
    String descriptor = body.owner().descriptorString();
    String owner = descriptor.substring(1, descriptor.length() - 1);
    return NATIVE_INTERFACES.contains(owner)
        ? NATIVE
        : owner + "." + body.methodName() + body.lookupDescriptor();
  }

  // --- how many monitors are held where ---------------------------------------------------------

  /** Follows every path; where two meet they hold the same number, as javac writes them. */
  private static int[] heldAt(List<CodeElement> elements) {
    Map<Label, Integer> places = new HashMap<>();
    List<ExceptionCatch> handlers = new ArrayList<>();
    for (int i = 0; i < elements.size(); i++) {
      switch (elements.get(i)) {
        case LabelTarget target -> places.put(target.label(), i);
        case ExceptionCatch handler -> handlers.add(handler);
        default -> {}
      }
    }
    int[] held = new int[elements.size()];
    Arrays.fill(held, -1);
    Deque<Integer> open = new ArrayDeque<>();
    reach(0, 0, held, open);
    while (!open.isEmpty()) {
      int at = open.pop();
      for (ExceptionCatch handler : handlers) {
        if (places.get(handler.tryStart()) <= at && at < places.get(handler.tryEnd())) {
          reach(places.get(handler.handler()), held[at], held, open);
        }
      }
      int after = held[at] + change(elements.get(at));
      for (Label target : targets(elements.get(at))) {
        reach(places.get(target), after, held, open);
      }
      if (goesOn(elements.get(at))) {
        reach(at + 1, after, held, open);
      }
    }
    return held;
  }

  private static void reach(int at, int count, int[] held, Deque<Integer> open) {
    if (at < held.length && held[at] < 0) {
      held[at] = Math.max(count, 0);
      open.push(at);
    }
  }

  private static int change(CodeElement element) {
    return element instanceof MonitorInstruction monitor
        ? monitor.opcode() == Opcode.MONITORENTER ? 1 : -1
        : 0;
  }

  private static List<Label> targets(CodeElement element) {
    return switch (element) {
      case BranchInstruction branch -> List.of(branch.target());
      case LookupSwitchInstruction choice -> {
        List<Label> all = new ArrayList<>(List.of(choice.defaultTarget()));
        choice.cases().forEach(each -> all.add(each.target()));
        yield all;
      }
      case TableSwitchInstruction choice -> {
        List<Label> all = new ArrayList<>(List.of(choice.defaultTarget()));
        choice.cases().forEach(each -> all.add(each.target()));
        yield all;
      }
      default -> List.of();
    };
  }

  private static boolean goesOn(CodeElement element) {
    return switch (element) {
      case ReturnInstruction _, ThrowInstruction _ -> false;
      case LookupSwitchInstruction _, TableSwitchInstruction _ -> false;
      case BranchInstruction branch ->
          branch.opcode() != Opcode.GOTO && branch.opcode() != Opcode.GOTO_W;
      case Instruction _ -> true;
      default -> true;
    };
  }

  // --- what reaches native code -----------------------------------------------------------------

  private boolean isNative(String target) {
    return target.equals(NATIVE) || meant(target).stream().anyMatch(reaching::contains);
  }

  /** Adds callers of what is known, until there are no more. */
  private void markCallers() {
    boolean more = true;
    while (more) {
      more = false;
      for (var type : methods.entrySet()) {
        for (var method : type.getValue().entrySet()) {
          String key = type.getKey() + "." + method.getKey();
          if (!reaching.contains(key)
              && method.getValue().stream().anyMatch(call -> isNative(call.target))) {
            more |= reaching.add(key);
          }
        }
      }
    }
  }

  private Set<String> meant(String target) {
    int dot = target.indexOf('.');
    String owner = target.substring(0, dot);
    String method = target.substring(dot + 1);
    Set<String> found = new HashSet<>();
    for (String at = owner; types.containsKey(at); at = types.get(at).parent) {
      if (methods.get(at).containsKey(method)) {
        found.add(at + "." + method);
        break;
      }
    }
    if (types.containsKey(owner)) {
      below(owner, method, found);
    }
    return found;
  }

  private void below(String type, String method, Set<String> found) {
    for (String child : children.getOrDefault(type, Set.of())) {
      if (methods.get(child).containsKey(method)) {
        found.add(child + "." + method);
      }
      below(child, method, found);
    }
  }
}
