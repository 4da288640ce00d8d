package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.TestAgent;
import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.own.OwnSpans;
import io.github.sibyltrace.agent.plan.TestPlans;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;

/** A class is transformed for methods that were not instrumented yet, and once more to restore it. */
class RestoreTest {
  private static final int AFTER = 300; // seconds
  private static final String CLASS = "app.copy.Work0";
  private static final String LIST = "shop/" + CLASS + ".list(int,Object,Object)";
  private static final String LOOP = "shop/" + CLASS + ".loop(int)";

  /** Records the instrumented methods of the class at each transformation. */
  private static final class Recorder implements ClassFileTransformer {
    final List<String> transformations = new ArrayList<>();

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
      if (name.equals(CLASS.replace('.', '/')) && redefined != null) {
        transformations.add(instrumented(bytes));
      }
      return null;
    }

    /** Returns the names of the methods that enter the bridge, sorted. */
    private static String instrumented(byte[] bytes) {
      TreeSet<String> names = new TreeSet<>();
      new ClassReader(bytes)
          .accept(
              new ClassVisitor(Opcodes.ASM9) {
                @Override
                public MethodVisitor visitMethod(int access, String method, String descriptor, String signature, String[] exceptions) {
                  return new MethodVisitor(Opcodes.ASM9) {
                    @Override
                    public void visitMethodInsn(int opcode, String owner, String name, String type, boolean isInterface) {
                      if (owner.endsWith("/Bridge")) {
                        names.add(method);
                      }
                    }
                  };
                }
              },
              0);
      return String.join(" ", names);
    }
  }

  @Test
  void searchesReturnToClasses() throws Exception {
    Class.forName(CLASS, true, new Copies(1));
    Log log = new Log(System.err, Log.Level.WARN);
    OwnClasses own = new OwnClasses(Pattern.compile("app\\.copy\\..*"), null, null, new Classifier("app.Main", List.of()));
    Instrumentation instrumentation = TestAgent.instrumentation();
    Registry registry = new Registry("shop", own, new Selection(name -> false, name -> false, false), 1000, AFTER, instrumentation, new Otel(new OwnSpans(null, null), log), log);
    registry.start();
    Recorder recorder = new Recorder();
    instrumentation.addTransformer(recorder, true);
    registry.scan();

    registry.apply(TestPlans.of(1, LIST));
    registry.apply(null);
    registry.apply(TestPlans.of(2, LIST));
    registry.apply(TestPlans.of(3, LOOP));
    registry.apply(TestPlans.of(4, LIST, LOOP));
    registry.apply(TestPlans.of(5, LOOP));
    assertEquals(List.of("applied"), registry.outcomes().stream().map(o -> o.state).collect(Collectors.toList()));
    assertEquals(List.of("list", "list loop"), recorder.transformations);

    long soon = System.nanoTime() + (AFTER - 10) * 1_000_000_000L;
    registry.restore(soon);
    assertEquals(List.of("list", "list loop"), recorder.transformations);
    registry.restore(soon + 20_000_000_000L);
    assertEquals(List.of("list", "list loop", "loop"), recorder.transformations);
    registry.apply(null);
    registry.restore(soon + 1_000_000_000_000L);
    registry.restore(soon + 2_000_000_000_000L);
    assertEquals(List.of("list", "list loop", "loop", ""), recorder.transformations);
    instrumentation.removeTransformer(recorder);
  }
}
