package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.plan.Limits;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Plans;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.weave.ClassFile;
import io.github.sibyltrace.agent.weave.Hook;
import io.github.sibyltrace.agent.weave.Refusal;
import io.github.sibyltrace.agent.weave.SamplerHook;
import io.github.sibyltrace.agent.weave.Weave;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Predicate;

/** The tracepoints of a process: the catalogue of the application's loaded methods, and those that a plan enables. */
public final class Registry implements ClassFileTransformer {
  private static final int BATCH = 100; // classes that are transformed at once

  public final String service;
  final RateLimit total;
  private final OwnClasses own;
  private final Unsure unsure;
  private final Predicate<String> isEntry;
  private final int spansPerSecond;
  private final Instrumentation instrumentation;
  private final SpansFactory factory;
  private final Log log;

  private volatile Plans plans = Plans.NONE;
  private final AtomicBoolean classesLoaded = new AtomicBoolean(true); // since the last scan

  // Transformations read these maps while other threads load classes; only the thread that scans and applies writes them.
  private final Map<String, Known> catalogue = new ConcurrentHashMap<>(); // methods by ID
  private final Map<String, String> refused = new ConcurrentHashMap<>(); // reasons by name of class
  private final Map<String, Point> points = new ConcurrentHashMap<>(); // by ID
  private final Map<String, Set<Known>> wanted = new ConcurrentHashMap<>(); // methods to instrument, by name of class
  private final Map<String, String> failures = new ConcurrentHashMap<>(); // reasons by ID
  private final Set<String> woven = ConcurrentHashMap.newKeySet(); // IDs that at least one loaded class reports
  private final Map<String, Map<Spans, Integer>> probes = new ConcurrentHashMap<>(); // indexes in the bridge, by ID
  private final Set<Class<?>> scanned = Collections.newSetFromMap(new java.util.WeakHashMap<>());

  /** A method of the catalogue. */
  private static final class Known {
    final Tracepoint tracepoint;
    final String className;
    final String method; // name and descriptor

    Known(Tracepoint tracepoint, String className, String method) {
      this.tracepoint = tracepoint;
      this.className = className;
      this.method = method;
    }
  }

  /**
   * Creates a registry without tracepoints.
   *
   * @param isEntry whether a method, by class and name, is an entry of requests, which is always instrumented
   * @param spansPerSecond limit of each tracepoint; that of all together is four times as high
   */
  public Registry(String service, OwnClasses own, Predicate<String> isEntry, int spansPerSecond, Instrumentation instrumentation, SpansFactory factory, Log log) {
    this.service = service;
    this.own = own;
    this.unsure = new Unsure(log);
    this.isEntry = isEntry;
    this.spansPerSecond = spansPerSecond;
    this.total = new RateLimit(4 * spansPerSecond);
    this.instrumentation = instrumentation;
    this.factory = factory;
    this.log = log;
  }

  /** Begins to observe classes. */
  public void start() {
    Bridge.setSamplerWrapper(factory.samplers(this));
    instrumentation.addTransformer(this, true);
    List<Class<?>> sdks = new ArrayList<>();
    for (Class<?> c : instrumentation.getAllLoadedClasses()) {
      if (c.getName().equals(SamplerHook.CLASS)) {
        sdks.add(c);
      }
    }
    retransform(sdks);
  }

  public Plans plans() {
    return plans;
  }

  /** Looks for new classes, and reports whether the catalogue changed. */
  public synchronized boolean scan() {
    if (!classesLoaded.getAndSet(false)) {
      return false;
    }
    int before = catalogue.size();
    for (Class<?> c : instrumentation.getAllLoadedClasses()) {
      boolean named = !c.isArray() && !c.isPrimitive() && c.getName().indexOf('/') < 0; // hidden classes have a slash
      if (named && own.contains(c.getName(), c.getClassLoader(), c.getProtectionDomain()) && scanned.add(c)) {
        addMethods(c);
        String reason = refused.get(c.getName());
        if (reason != null) {
          log.info(c.getName() + " has no tracepoints: " + reason);
        }
      }
    }
    unsure.tell(own.unsure());
    if (catalogue.size() == before) {
      return false;
    }
    instrument(plans); // entries among the new methods
    return true;
  }

  /** Adds the methods of a class to the catalogue. It reads the class file, since reflection would load further classes. */
  private void addMethods(Class<?> c) {
    String name = c.getName();
    try {
      ClassFile file = ClassFile.of(c);
      if (file == null) {
        refused.put(name, "the class file is not found: the class was generated");
        return;
      }
      String reason = instrumentation.isModifiableClass(c) ? Refusal.ofLoaded(file, c.getClassLoader()) : "the JVM does not allow to change it";
      if (reason != null) {
        refused.put(name, reason);
        return;
      }
      for (ClassFile.Method m : file.methods) {
        add(name, m);
      }
    } catch (Throwable t) {
      refused.put(name, "cannot read the class file: " + t);
    }
  }

  private void add(String className, ClassFile.Method m) {
    if (m.isConstructor() || catalogue.size() >= Limits.CATALOGUE) {
      return;
    }
    Tracepoint t = new Tracepoint(service, className, m.signature(), isEntry);
    if (t.isValid()) {
      catalogue.putIfAbsent(t.id, new Known(t, className, m.name + m.descriptor));
    }
  }

  /** Returns the catalogue, ascending by ID. */
  public List<Tracepoint> catalogue() {
    List<Tracepoint> all = new ArrayList<>();
    new TreeMap<>(catalogue).values().forEach(k -> all.add(k.tracepoint));
    return all;
  }

  /** Makes p the current plan; null: returns to the baseline. */
  public synchronized void apply(Plan p) {
    Plans next = plans.with(p);
    if (p == null) {
      plans = next; // no request gets a span any more, even if the transformation takes a while
    }
    instrument(next);
    plans = next; // now requests get arms of the plan, all of whose tracepoints are there
  }

  /** Instruments the entries of requests and the tracepoints of the current plan, and no others. */
  private void instrument(Plans next) {
    Map<String, Set<Known>> before = new HashMap<>(wanted);
    Map<String, Set<Known>> after = new HashMap<>();
    Set<String> enabled = next.enabled();
    for (Known k : catalogue.values()) {
      Tracepoint t = k.tracepoint;
      if (t.baseline || enabled.contains(t.id)) {
        points.computeIfAbsent(t.id, x -> new Point(t, this, spansPerSecond));
        after.computeIfAbsent(k.className, x -> new HashSet<>()).add(k);
      }
    }
    wanted.keySet().retainAll(after.keySet());
    wanted.putAll(after);
    transform(changed(before, after));
  }

  private static Set<String> changed(Map<String, Set<Known>> before, Map<String, Set<Known>> after) {
    Set<String> names = new HashSet<>(before.keySet());
    names.addAll(after.keySet());
    names.removeIf(n -> before.getOrDefault(n, Set.of()).equals(after.getOrDefault(n, Set.of())));
    return names;
  }

  private void transform(Set<String> names) {
    if (names.isEmpty()) {
      return;
    }
    List<Class<?>> classes = new ArrayList<>();
    for (Class<?> c : instrumentation.getAllLoadedClasses()) {
      if (names.contains(c.getName())) {
        classes.add(c);
      }
    }
    forget(names);
    long start = System.nanoTime();
    for (int i = 0; i < classes.size(); i += BATCH) {
      retransform(classes.subList(i, Math.min(i + BATCH, classes.size())));
    }
    log.debug("transformed " + classes.size() + " classes in " + (System.nanoTime() - start) / 1_000_000 + " ms");
  }

  /** Forgets the outcomes of classes, which their transformation determines again. */
  private void forget(Set<String> classNames) {
    for (Known k : catalogue.values()) {
      if (classNames.contains(k.className)) {
        failures.remove(k.tracepoint.id);
        woven.remove(k.tracepoint.id);
      }
    }
  }

  /** Transforms classes, one by one if they cannot be transformed together, so that one does not affect the others. */
  private void retransform(List<Class<?>> classes) {
    if (classes.isEmpty()) {
      return;
    }
    try {
      instrumentation.retransformClasses(classes.toArray(new Class<?>[0]));
    } catch (Throwable t) {
      if (classes.size() > 1) {
        classes.forEach(c -> retransform(List.of(c)));
        return;
      }
      fail(classes.get(0).getName(), t);
    }
  }

  private void fail(String className, Throwable cause) {
    log.warn("cannot instrument " + className + ": " + cause);
    for (Known k : wanted.getOrDefault(className, Set.of())) {
      woven.remove(k.tracepoint.id);
      failures.put(k.tracepoint.id, "the JVM refused the transformed class: " + cause);
    }
  }

  @Override
  public byte[] transform(Module module, ClassLoader loader, String internalName, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    return transform(loader, internalName, redefined, domain, bytes);
  }

  @Override
  public byte[] transform(ClassLoader loader, String internalName, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
    if (internalName == null || loader == null) {
      return null;
    }
    String name = internalName.replace('/', '.');
    try {
      if (name.equals(SamplerHook.CLASS)) {
        return Refusal.seesBridge(loader) ? SamplerHook.apply(bytes) : null;
      }
      if (redefined == null && own.mayContain(name, loader, domain)) {
        classesLoaded.set(true);
      }
      Set<Known> methods = wanted.get(name);
      return methods == null ? null : weave(loader, bytes, methods);
    } catch (Throwable t) {
      fail(name, t);
      return null;
    }
  }

  private byte[] weave(ClassLoader loader, byte[] bytes, Set<Known> methods) {
    Spans spans = factory.spansFor(loader);
    Map<String, Hook> hooks = new HashMap<>();
    for (Known k : methods) {
      hooks.put(k.method, new Hook(probe(k.tracepoint.id, spans), false));
    }
    byte[] result = Weave.apply(bytes, hooks);
    methods.forEach(k -> woven.add(k.tracepoint.id));
    return result;
  }

  /** Returns the index of the probe of a tracepoint. A tracepoint keeps it, so that toggling it uses no memory. */
  private int probe(String id, Spans spans) {
    return probes.computeIfAbsent(id, x -> new ConcurrentHashMap<>()).computeIfAbsent(spans, s -> Bridge.add(points.get(id).probe(s)));
  }

  /** The state of a tracepoint, for the status. */
  public static final class Outcome {
    public final String id;
    public final String state;
    public final String reason; // "": none
    public final Point point; // null: it was never enabled

    Outcome(String id, String state, String reason, Point point) {
      this.id = id;
      this.state = state;
      this.reason = reason;
      this.point = point;
    }
  }

  /** Returns the states of the tracepoints of the plan and of those with hits, ascending by ID. */
  public List<Outcome> outcomes() {
    Set<String> planned = plans.enabled();
    TreeMap<String, Outcome> all = new TreeMap<>();
    Set<String> ids = new LinkedHashSet<>(planned);
    points.forEach(
        (id, p) -> {
          if (p.hits() > 0) {
            ids.add(id);
          }
        });
    for (String id : ids) {
      all.put(id, outcome(id, planned.contains(id)));
    }
    List<Outcome> list = new ArrayList<>(all.values());
    return list.subList(0, Math.min(list.size(), Limits.OUTCOMES));
  }

  private Outcome outcome(String id, boolean planned) {
    Known k = catalogue.get(id);
    if (k == null) {
      return new Outcome(id, "unsupported", unknown(id), null);
    }
    String reason = planned ? failures.get(id) : null;
    if (reason == null && planned && !woven.contains(id)) {
      reason = "the class was unloaded";
    }
    return new Outcome(id, reason == null ? "applied" : "failed", reason == null ? "" : reason, points.get(id));
  }

  /** Returns why an ID is not in the catalogue. */
  private String unknown(String id) {
    String rest = id.startsWith(service + "/") ? id.substring(service.length() + 1) : id;
    int end = rest.indexOf('(');
    int dot = end < 0 ? -1 : rest.lastIndexOf('.', end);
    String reason = dot < 0 ? null : refused.get(rest.substring(0, dot));
    return reason != null ? reason : "no class with such a method is loaded";
  }
}
