package io.github.sibyltrace.android.weaver;

import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.weave.ClassFile;
import io.github.sibyltrace.agent.weave.Hook;
import io.github.sibyltrace.agent.weave.Weave;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.objectweb.asm.Attribute;
import org.objectweb.asm.ByteVector;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodTooLargeException;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.MethodNode;

/** Weaves classes one by one. A class that it cannot weave stays as it is, and the report says why. */
final class Weaver {
  private final Rules rules;
  private final String service;
  private final Catalogue catalogue;
  private final Report report;

  Weaver(Rules rules, String service, Catalogue catalogue, Report report) {
    this.rules = rules;
    this.service = service;
    this.catalogue = catalogue;
    this.report = report;
  }

  /**
   * Returns the woven class, or the same bytes if nothing changes.
   *
   * @param file for messages
   */
  byte[] weave(String file, byte[] original) {
    report.classes++;
    int size = catalogue.size();
    try {
      return weave(original, new ClassFile(original));
    } catch (RuntimeException e) { // such as a version of class files that ASM does not know
      catalogue.truncate(size);
      report.refuse(file, e.toString());
      return original;
    }
  }

  private byte[] weave(byte[] original, ClassFile c) {
    String refusal = c.refusal();
    if (isWoven(original) || refusal != null) {
      if (refusal == null) {
        report.again++;
      } else if (!c.methods.isEmpty()) { // there is code
        report.refuse(c.name, refusal);
      }
      return original;
    }
    Map<String, Body> bodies = bodies(c);
    int size = catalogue.size();
    for (; ; ) {
      Map<String, String> objections = new HashMap<>();
      Pass pass = new Pass(c.name);
      byte[] woven = weave(original, bodies, pass, objections);
      if (objections.isEmpty()) {
        count(c, bodies, pass);
        return bodies.isEmpty() && pass.calls.isEmpty() ? original : woven;
      }
      catalogue.truncate(size);
      objections.forEach((method, reason) -> report.refuse(bodies.remove(method).id, reason));
    }
  }

  private void count(ClassFile c, Map<String, Body> bodies, Pass pass) {
    report.methods += bodies.size();
    report.calls += pass.calls.size();
    report.changed += bodies.isEmpty() && pass.calls.isEmpty() ? 0 : 1;
    bodies.values().forEach(b -> report.decisions.add(b.id + ": " + b.rule.text));
    report.decisions.addAll(pass.calls);
    pass.refusals.forEach(r -> report.refuse(c.name, r));
  }

  /** A method that becomes a tracepoint. */
  private static final class Body {
    final String id;
    final Rule rule;

    Body(String id, Rule rule) {
      this.id = id;
      this.rule = rule;
    }
  }

  /** Selects the tracepoints of a class, by name and descriptor of their methods. */
  private Map<String, Body> bodies(ClassFile c) {
    Map<String, Body> bodies = new LinkedHashMap<>();
    for (ClassFile.Method m : c.methods) {
      Rule r = m.isConstructor() || rules.never(c.name, m.name, m.descriptor) ? null : rules.ofBody(c.name, m.name, m.descriptor);
      if (r == null) {
        continue;
      }
      Tracepoint t = Tracepoint.ofMethod(service, c.name, m.signature(), false);
      if (m.trivial) {
        report.decisions.add(t.id + ": not woven, as it only moves values");
      } else if (!t.isValid()) {
        report.refuse(t.id, "its ID is longer than 256 bytes, or not printable");
      } else {
        bodies.put(m.name + m.descriptor, new Body(t.id, r));
      }
    }
    return bodies;
  }

  /**
   * Weaves a class.
   *
   * @param objections receives the methods, by name and descriptor, that must not become tracepoints, with the reasons
   */
  private byte[] weave(byte[] original, Map<String, Body> bodies, Pass pass, Map<String, String> objections) {
    Map<String, Hook> hooks = new HashMap<>();
    bodies.forEach((method, b) -> hooks.put(method, new Hook(catalogue.number(b.id, b.rule.tracepointKind()), false)));
    try {
      byte[] hooked = hooks.isEmpty() ? original : Weave.apply(original, hooks);
      byte[] woven = pass.apply(hooked);
      objections.putAll(locks(woven, hooks.keySet()));
      return woven;
    } catch (MethodTooLargeException e) {
      String method = e.getMethodName() + e.getDescriptor();
      if (!bodies.containsKey(method)) {
        throw e;
      }
      objections.put(method, "it would be larger than 64 KB");
      return original;
    }
  }

  private static Map<String, String> locks(byte[] woven, Set<String> hooked) {
    Map<String, String> objections = new HashMap<>();
    if (!hooked.isEmpty()) {
      ClassNode c = new ClassNode();
      new ClassReader(woven).accept(c, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
      for (MethodNode m : c.methods) {
        String reason = hooked.contains(m.name + m.desc) ? Locks.objection(m) : null;
        if (reason != null) {
          objections.put(m.name + m.desc, reason + ", to which Android's runtime objects");
        }
      }
    }
    return objections;
  }

  /** Sends calls to wrappers, and marks the class. */
  private final class Pass {
    final List<String> calls = new ArrayList<>();
    final Set<String> refusals = new TreeSet<>();
    private final String className;

    Pass(String className) {
      this.className = className;
    }

    byte[] apply(byte[] classFile) {
      ClassReader reader = new ClassReader(classFile);
      ClassWriter writer = new ClassWriter(reader, 0); // copies methods without calls to change, and keeps all frames
      reader.accept(
          new ClassVisitor(Weave.API, writer) {
            @Override
            public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] exceptions) {
              MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
              String place = className + "." + ClassFile.signature(name, descriptor);
              return rules.never(className, name, descriptor) ? next : new Calls(next, rules, rule -> calls.add(place + ": " + rule), refusals::add);
            }

            @Override
            public void visitEnd() {
              visitAttribute(new Woven());
              super.visitEnd();
            }
          },
          0);
      return writer.toByteArray();
    }
  }

  /** Marks woven classes, so that a second weave leaves them. D8 and R8 drop it. */
  private static final class Woven extends Attribute {
    static final String NAME = "io.github.sibyltrace.Woven";

    Woven() {
      super(NAME);
    }

    @Override
    protected ByteVector write(ClassWriter writer, byte[] code, int length, int stack, int locals) {
      return new ByteVector();
    }
  }

  private static boolean isWoven(byte[] classFile) {
    boolean[] found = new boolean[1];
    new ClassReader(classFile)
        .accept(
            new ClassVisitor(Weave.API) {
              @Override
              public void visitAttribute(Attribute a) {
                found[0] |= a.type.equals(Woven.NAME);
              }
            },
            ClassReader.SKIP_CODE | ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
    return found[0];
  }
}
