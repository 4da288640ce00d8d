package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import app.HidingClassLoader;
import app.Work;
import io.github.sibyltrace.agent.TestAgent;
import io.github.sibyltrace.agent.bridge.Activation;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.bridge.Probe;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.ProtectionDomain;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongUnaryOperator;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import org.apache.felix.framework.FrameworkFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.osgi.framework.Bundle;
import org.osgi.framework.Constants;
import org.osgi.framework.launch.Framework;

/** The bridge is on the bootstrap class path of the tests, as in a JVM with the agent. */
class LoadersTest {
  private static final String FILE = Work.class.getName().replace('.', '/') + ".class";

  private final AtomicInteger calls = new AtomicInteger();
  private final Probe counter =
      new Probe() {
        @Override
        public Activation enter() {
          calls.incrementAndGet();
          return null;
        }
      };

  /** Weaves a class that a loader has loaded, and returns the number of its calls of the bridge in one call. */
  private int callsOfBridge(Class<?> work) throws Exception {
    Instrumentation i = TestAgent.instrumentation();
    int probe = Bridge.add(counter);
    ClassFileTransformer weaving =
        new ClassFileTransformer() {
          @Override
          public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
            return redefined == work ? WeaveTest.weaveAll(bytes, probe) : null;
          }
        };
    LongUnaryOperator w = (LongUnaryOperator) work.getConstructor().newInstance();
    long before = w.applyAsLong(9);
    i.addTransformer(weaving, true);
    try {
      i.retransformClasses(work);
      assertEquals(before, w.applyAsLong(9));
      return calls.get();
    } finally {
      i.removeTransformer(weaving);
      i.retransformClasses(work);
    }
  }

  @Test
  void opensLoadersThatHideTheBootstrapClassPath() throws Exception {
    Loaders loaders = new Loaders(TestAgent.instrumentation());
    HidingClassLoader loader = new HidingClassLoader();
    assertFalse(Loaders.findBridge(loader));
    assertTrue(loaders.open(loader));
    Class<?> work = loader.loadClass(Work.class.getName());
    assertNotSame(Work.class, work);
    assertEquals(12, callsOfBridge(work));
    assertTrue(loaders.open(new HidingClassLoader()));
    loaders.close();
    assertFalse(Loaders.findBridge(new HidingClassLoader()));
  }

  @Test
  void opensLoadersWhenTheyAreLoaded() throws Exception {
    Loaders loaders = new Loaders(TestAgent.instrumentation());
    URL here = HidingClassLoader.class.getProtectionDomain().getCodeSource().getLocation();
    try (URLClassLoader server = new URLClassLoader(new URL[] {here}, null)) {
      Class<?> type = server.loadClass(HidingClassLoader.class.getName());
      assertNotSame(HidingClassLoader.class, type);
      assertTrue(Loaders.findBridge((ClassLoader) type.getConstructor().newInstance()));
    } finally {
      loaders.close();
    }
  }

  @Test
  void opensBundles(@TempDir Path dir) throws Exception {
    Path jar = dir.resolve("bundle.jar");
    Manifest m = new Manifest();
    m.getMainAttributes().putValue("Manifest-Version", "1.0");
    m.getMainAttributes().putValue(Constants.BUNDLE_MANIFESTVERSION, "2");
    m.getMainAttributes().putValue(Constants.BUNDLE_SYMBOLICNAME, "app");
    try (OutputStream out = Files.newOutputStream(jar);
        JarOutputStream j = new JarOutputStream(out, m);
        InputStream in = Work.class.getClassLoader().getResourceAsStream(FILE)) {
      j.putNextEntry(new JarEntry(FILE));
      in.transferTo(j);
    }
    Framework framework = new FrameworkFactory().newFramework(Map.of(Constants.FRAMEWORK_STORAGE, dir.resolve("cache").toString(), "felix.bootdelegation.implicit", "false"));
    try {
      framework.start();
      Bundle bundle = framework.getBundleContext().installBundle(jar.toUri().toString());
      bundle.start();
      Class<?> work = bundle.loadClass(Work.class.getName());
      assertNotSame(Work.class, work);
      assertFalse(Loaders.findBridge(work.getClassLoader()));
      Loaders loaders = new Loaders(TestAgent.instrumentation());
      assertTrue(loaders.open(work.getClassLoader()));
      assertEquals(12, callsOfBridge(work));
      loaders.close();
    } finally {
      framework.stop();
      framework.waitForStop(10_000);
    }
  }
}
