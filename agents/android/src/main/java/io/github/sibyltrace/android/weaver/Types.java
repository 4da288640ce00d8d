package io.github.sibyltrace.android.weaver;

import java.io.IOException;
import java.io.InputStream;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.objectweb.asm.ClassReader;

/** Knows the supertypes of classes from their class files, without loading them. */
final class Types {
  /** Finds class files by the name of their class, with slashes. */
  interface Source {
    /** Returns null if there is no such class. */
    byte[] find(String internalName) throws IOException;
  }

  private final Source source;
  private final Map<String, Set<String>> supertypes = new HashMap<>();
  private final Set<String> missing = new TreeSet<>();

  Types(Source source) {
    this.source = source;
  }

  /** Returns all supertypes of a class that are known, nearest first. Names have dots. */
  Set<String> supertypes(String className) {
    Set<String> known = supertypes.get(className);
    if (known == null) {
      known = new LinkedHashSet<>();
      supertypes.put(className, known); // before the recursion, which a cycle of supertypes would not end
      collect(className, known);
    }
    return known;
  }

  private void collect(String className, Set<String> all) {
    byte[] file = read(className.replace('.', '/'));
    if (file == null) {
      missing.add(className);
      return;
    }
    ClassReader r = new ClassReader(file);
    if (r.getSuperName() != null) {
      add(r.getSuperName(), all);
    }
    for (String i : r.getInterfaces()) {
      add(i, all);
    }
  }

  private void add(String internalName, Set<String> all) {
    String name = internalName.replace('/', '.');
    all.add(name);
    all.addAll(supertypes(name));
  }

  private byte[] read(String internalName) {
    try {
      byte[] found = source.find(internalName);
      return found != null || !internalName.startsWith("java/") ? found : ofJdk(internalName);
    } catch (IOException | RuntimeException e) {
      return null;
    }
  }

  /** Reads a class of the JDK, which Robolectric's jars of Android lack. */
  private static byte[] ofJdk(String internalName) throws IOException {
    try (InputStream in = ClassLoader.getSystemResourceAsStream(internalName + ".class")) {
      return in == null ? null : in.readAllBytes();
    }
  }

  /** Returns the classes that were asked for and not found. */
  Set<String> missing() {
    return missing;
  }
}
