package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.weave.ClassFile;
import java.lang.reflect.Modifier;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import java.util.regex.Pattern;

/**
 * Tells the only callers of methods, from the code of the classes that are loaded. A method that anything else than one
 * method of the application may call has none: libraries call what overrides their methods, what is annotated, and
 * accessors by their names, and nobody knows who runs a lambda. Not safe for concurrent use.
 */
final class Callers {
  // Methods that are called, beyond which nothing is told: some 20 MB.
  private static final int MAX_CALLED = 200_000;

  private static final String SEVERAL = ""; // or an unknown one
  private static final Set<String> HARMLESS = Set.of("java.lang.Object", "java.lang.Record", "java.lang.Enum", "java.lang.Comparable", "java.lang.constant.Constable", "java.io.Serializable");
  private static final Pattern CALLED_BY_NAME = Pattern.compile("(get|is|set)\\p{Lu}.*|(equals|hashCode|toString|compareTo|main)\\(.*");

  private final Map<Integer, String> only = new HashMap<>(); // callers as class, name and descriptor, by the hash of the callee: equal hashes only hide a caller
  private final Map<String, Set<String>> related = new HashMap<>(); // superclasses, interfaces and subclasses of classes
  private final Set<String> foreign = new HashSet<>(); // classes with a superclass or an interface of a library

  /**
   * Adds a class.
   *
   * @param isOwn whether a class is the application's own
   */
  void add(Class<?> c, ClassFile file, Predicate<Class<?>> isOwn) {
    Set<Class<?>> above = new LinkedHashSet<>();
    collect(c, above);
    for (Class<?> a : above) {
      if (isOwn.test(a)) {
        related.computeIfAbsent(c.getName(), x -> new HashSet<>()).add(a.getName());
        related.computeIfAbsent(a.getName(), x -> new HashSet<>()).add(c.getName());
      } else if (!HARMLESS.contains(a.getName())) {
        foreign.add(c.getName());
      }
    }
    for (ClassFile.Call call : file.calls) {
      String caller = call.caller == null ? SEVERAL : file.name + "." + call.caller;
      if (!call.callee.equals(caller) && only.size() < MAX_CALLED) {
        only.merge(call.callee.hashCode(), caller, (a, b) -> a.equals(b) ? a : SEVERAL);
      }
    }
  }

  private static void collect(Class<?> c, Set<Class<?>> above) {
    if (c.getSuperclass() != null && above.add(c.getSuperclass())) {
      collect(c.getSuperclass(), above);
    }
    for (Class<?> i : c.getInterfaces()) {
      if (above.add(i)) {
        collect(i, above);
      }
    }
  }

  /** Returns the only caller of a method as class, name and descriptor, null if there may be others. */
  String of(String className, ClassFile.Method m) {
    boolean isPrivate = Modifier.isPrivate(m.access);
    String method = m.name + m.descriptor;
    if (only.size() >= MAX_CALLED || m.annotated || !isPrivate && (foreign.contains(className) || CALLED_BY_NAME.matcher(method).matches())) {
      return null;
    }
    String caller = only.get((className + "." + method).hashCode());
    if (!isPrivate) {
      for (String other : related.getOrDefault(className, Set.of())) {
        String there = only.get((other + "." + method).hashCode());
        caller = caller == null || caller.equals(there) ? there : there == null ? caller : SEVERAL;
      }
    }
    return SEVERAL.equals(caller) ? null : caller;
  }
}
