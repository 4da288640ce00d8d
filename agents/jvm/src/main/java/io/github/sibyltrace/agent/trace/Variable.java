package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.weave.ClassFile;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;
import org.objectweb.asm.Type;

/**
 * A value of a method that can become an attribute of its span: an argument, the returned value, or the class of the
 * exception that leaves it.
 *
 * <p>No text leaves the JVM: the values are numbers, booleans, the names of constants of enums, and, of texts, arrays and
 * collections, the length only. No code of the application runs to get them.
 */
final class Variable {
  static final int RETURNED = -1;
  static final int THROWN = -2;

  /** The collections whose size is known without locks, and without asking other collections. */
  private static final Set<String> COLLECTIONS =
      Set.of("ArrayList", "LinkedList", "Arrays$ArrayList", "ArrayDeque", "HashMap", "LinkedHashMap", "TreeMap", "EnumMap", "HashSet", "LinkedHashSet", "TreeSet", "PriorityQueue");

  private static final Set<String> BOXES = Set.of("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double");

  final int index; // of the argument, or one of the constants
  final String name;

  private Variable(int index, String name) {
    this.index = index;
    this.name = name;
  }

  /**
   * Returns the variables of a method.
   *
   * @param parameters names of the parameters; null: unknown, as may be each of them
   * @param isEnum whether a class of the application is an enum
   */
  static List<Variable> of(ClassFile.Method m, String[] parameters, Predicate<String> isEnum) {
    List<Variable> all = new ArrayList<>();
    Type[] types = Type.getArgumentTypes(m.descriptor);
    for (int i = 0; i < types.length; i++) {
      String name = parameters == null || parameters[i] == null ? "arg" + i : parameters[i];
      add(all, i, name, types[i], isEnum);
    }
    add(all, RETURNED, "return", Type.getReturnType(m.descriptor), isEnum);
    all.add(new Variable(THROWN, "exception"));
    return all;
  }

  private static void add(List<Variable> all, int index, String name, Type type, Predicate<String> isEnum) {
    String suffix = suffix(type, isEnum);
    if (suffix != null) {
      all.add(new Variable(index, name + suffix));
    }
  }

  /** Returns the end of the name of a variable of the given type, null if such values are never captured. */
  private static String suffix(Type type, Predicate<String> isEnum) {
    String name = type.getClassName();
    if (type.getSort() == Type.ARRAY || name.equals("java.lang.String")) {
      return ".length";
    }
    if (type.getSort() != Type.OBJECT) {
      return type.getSort() == Type.VOID || type.getSort() == Type.CHAR ? null : "";
    }
    if (name.startsWith("java.util.")) {
      return name.endsWith("List") || name.endsWith("Set") || name.endsWith("Map") || name.endsWith("Collection") || name.endsWith("Queue") ? ".size" : null;
    }
    boolean isBox = name.startsWith("java.lang.") && BOXES.contains(name.substring("java.lang.".length()));
    return isBox || isEnum.test(name) ? "" : null;
  }

  /** Returns a value as a Long, Double, Boolean or, of a constant or an exception, String; null: it is not captured. */
  Object value(Object v) {
    if (index == THROWN) {
      return v.getClass().getName();
    }
    if (v instanceof Boolean || v instanceof Long || v instanceof Double) {
      return v;
    }
    if (v instanceof Float) {
      return ((Float) v).doubleValue();
    }
    if (v instanceof Integer || v instanceof Short || v instanceof Byte) {
      return ((Number) v).longValue();
    }
    return v instanceof Enum ? ((Enum<?>) v).name() : length(v);
  }

  private static Long length(Object v) {
    if (v == null) {
      return null;
    }
    if (v instanceof String) {
      return (long) ((String) v).length();
    }
    Class<?> c = v.getClass();
    if (c.isArray()) {
      return (long) java.lang.reflect.Array.getLength(v);
    }
    boolean isKnown = c.getName().startsWith("java.util.ImmutableCollections$") || c.getName().startsWith("java.util.") && COLLECTIONS.contains(c.getName().substring("java.util.".length()));
    if (!isKnown) {
      return null;
    }
    return (long) (v instanceof java.util.Map ? ((java.util.Map<?, ?>) v).size() : ((java.util.Collection<?>) v).size());
  }
}
