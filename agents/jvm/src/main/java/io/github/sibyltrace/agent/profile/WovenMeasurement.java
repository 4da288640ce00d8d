package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.weave.ClassFile;
import io.github.sibyltrace.agent.weave.Hook;
import io.github.sibyltrace.agent.weave.Loaders;
import io.github.sibyltrace.agent.weave.ParameterNames;
import io.github.sibyltrace.agent.weave.Refusal;
import io.github.sibyltrace.agent.weave.Weave;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Counts and times all calls of the methods of chosen classes, and counts the objects of these classes, by probes in them. */
final class WovenMeasurement implements Measurement, ClassFileTransformer {
  private final ProfilerOptions options;
  private final Instrumentation instrumentation;
  private final Loaders loaders;
  private final ParameterNames names = new ParameterNames();
  private final Log log;
  private final Output output;
  private final long started = System.nanoTime();
  private volatile boolean stopped;

  private final Map<String, Integer> hooks = new ConcurrentHashMap<>(); // indexes of probes, by name of method or class
  private final List<ObjectProbe> objects = new ArrayList<>(); // guarded by this
  private int methods; // guarded by this

  private final List<ThreadProfile> threads = new ArrayList<>(); // guarded by itself, as the fields below
  private final ThreadProfile finished = new ThreadProfile(null); // sums of the threads that have ended
  private int foldAt = 256; // threads
  private final ThreadLocal<ThreadProfile> current = ThreadLocal.withInitial(this::register);

  WovenMeasurement(ProfilerOptions options, Instrumentation instrumentation, Output output, Log log) {
    this.options = options;
    this.instrumentation = instrumentation;
    this.loaders = new Loaders(instrumentation);
    this.output = output;
    this.log = log;
  }

  @Override
  public void start(Runnable atExit) {
    instrumentation.addTransformer(this, true);
    Runtime.getRuntime().addShutdownHook(new Thread(atExit, "sibyl-profile-end"));
    transformLoaded();
  }

  ThreadProfile current() {
    return current.get();
  }

  private ThreadProfile register() {
    ThreadProfile t = new ThreadProfile(Thread.currentThread());
    synchronized (threads) {
      threads.add(t);
      if (threads.size() >= foldAt) {
        threads.removeIf(this::fold);
        foldAt = Math.max(256, 2 * threads.size());
      }
    }
    return t;
  }

  /** Adds a thread to the sums of ended ones, and reports whether it has ended. */
  private boolean fold(ThreadProfile t) {
    if (t.thread.isAlive()) {
      return false;
    }
    finished.merge(t);
    return true;
  }

  /** Transforms the chosen classes that are loaded, except for those that this would damage. */
  private void transformLoaded() {
    for (Class<?> c : instrumentation.getAllLoadedClasses()) {
      if (!c.isArray() && options.choose(c.getName(), c.getClassLoader()) && instrumentation.isModifiableClass(c)) {
        try {
          ClassFile file = ClassFile.of(c);
          String refusal = file == null ? null : Refusal.ofLoaded(file, loaders.open(c.getClassLoader()));
          if (refusal == null) {
            instrumentation.retransformClasses(c);
          } else {
            log.warn(c.getName() + " is not transformed: " + refusal);
          }
        } catch (Throwable t) {
          log.warn("cannot transform " + c.getName() + ": " + t);
        }
      }
    }
  }

  @Override
  public byte[] transform(Module module, ClassLoader loader, String internalName, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    return transform(loader, internalName, redefined, domain, bytes);
  }

  @Override
  public byte[] transform(ClassLoader loader, String internalName, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    if (internalName == null || !options.choose(internalName.replace('/', '.'), loader)) {
      return null;
    }
    try {
      byte[] complete = names.restore(redefined, bytes);
      ClassFile file = new ClassFile(complete);
      String refusal = Refusal.ofNew(file, Loaders.findBridge(loader));
      if (refusal != null) {
        log.info(file.name + " is not instrumented: " + refusal);
      }
      if (refusal != null || stopped) {
        return redefined == null ? null : complete;
      }
      return Weave.apply(complete, hooksOf(file));
    } catch (Throwable t) {
      log.warn("cannot instrument " + internalName.replace('/', '.') + ": " + t);
      return null;
    }
  }

  private Map<String, Hook> hooksOf(ClassFile file) {
    Map<String, Hook> all = new HashMap<>();
    for (ClassFile.Method m : file.methods) {
      if (options.callsOnly && m.isConstructor()) {
        continue;
      }
      String name = m.isConstructor() ? file.name : file.name + "." + m.signature();
      all.put(m.name + m.descriptor, new Hook(hooks.computeIfAbsent(name, n -> addProbe(n, m.isConstructor())), false));
    }
    return all;
  }

  private synchronized int addProbe(String name, boolean constructor) {
    if (constructor) {
      ObjectProbe p = new ObjectProbe(name);
      objects.add(p);
      return Bridge.add(p);
    }
    boolean traced = options.trace != null && options.trace.matcher(name).find();
    return Bridge.add(traced ? new MethodProbe.Traced(this, methods++, name, output) : new MethodProbe(this, methods++, name));
  }

  /** Removes the instrumentation. */
  @Override
  public void stop() {
    stopped = true;
    for (int index : hooks.values()) {
      Bridge.set(index, null); // classes that the JVM does not transform now find no probe
    }
    transformLoaded();
    instrumentation.removeTransformer(this);
    loaders.close();
  }

  @Override
  public Profile profile() {
    List<Node> roots = new ArrayList<>();
    synchronized (threads) {
      threads.removeIf(this::fold);
      roots.add(finished.root);
      threads.forEach(t -> roots.add(t.root));
      synchronized (this) {
        return new Profile(System.nanoTime() - started, roots, new ArrayList<>(objects));
      }
    }
  }
}
