package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.bridge.Bridge;
import io.github.sibyltrace.agent.plan.Limits;
import io.github.sibyltrace.agent.plan.Plan;
import io.github.sibyltrace.agent.plan.Plans;
import io.github.sibyltrace.agent.plan.Tracepoint;
import io.github.sibyltrace.agent.weave.ClassFile;
import io.github.sibyltrace.agent.weave.Hook;
import io.github.sibyltrace.agent.weave.Loaders;
import io.github.sibyltrace.agent.weave.ParameterNames;
import io.github.sibyltrace.agent.weave.Refusal;
import io.github.sibyltrace.agent.weave.SamplerHook;
import io.github.sibyltrace.agent.weave.SpanHook;
import io.github.sibyltrace.agent.weave.Weave;
import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;

/** The tracepoints of a process: the catalogue of the application's loaded methods, and those that a plan enables. */
public final class Registry implements ClassFileTransformer {
  private static final int BATCH = 100; // classes that are transformed at once
  private static final int MAX_SPANS = 1000; // tracepoints of OpenTelemetry's spans; others always start

  // Changes of a class until its methods stay instrumented for good. After each, the JVM links the lambdas of the class
  // anew and keeps the old ones for as long as the class is loaded.
  static final int MAX_CHANGES = 20;

  public final String service;
  final RateLimit total;
  private final OwnClasses own;
  private final Unsure unsure;
  private final Selection select;
  private final int spansPerSecond;
  private final long restoreAfter; // ns
  private final Instrumentation instrumentation;
  private final Loaders loaders;
  private final ParameterNames names = new ParameterNames();
  private final SpansFactory factory;
  private final Log log;

  private volatile Plans plans = Plans.NONE;
  private volatile int enabledPoints = 1; // tracepoints that are enabled, at least 1
  private final AtomicBoolean classesLoaded = new AtomicBoolean(true); // since the last scan
  private boolean loading; // at the last scan, some classes may have been about to appear among the loaded ones

  // Transformations read these maps while other threads load classes; only the thread that scans and applies writes them.
  private final Map<String, Known> catalogue = new ConcurrentHashMap<>(); // methods by ID
  private final Map<String, String> refused = new ConcurrentHashMap<>(); // reasons by name of class
  private final Map<String, Point> points = new ConcurrentHashMap<>(); // by ID
  private final Map<String, Set<Known>> wanted = new ConcurrentHashMap<>(); // enabled ones, by name of class
  private final Map<String, Map<String, Boolean>> hooked = new ConcurrentHashMap<>(); // methods to instrument, and whether to pass values, by name of class
  private final Map<String, Integer> changes = new HashMap<>(); // of hooked, by name of class
  private long switched; // ns; when tracepoints were enabled or disabled last
  private boolean restored = true; // since then
  private final Set<String> broken = ConcurrentHashMap.newKeySet(); // classes that the last change failed to instrument
  private final Map<String, String> failures = new ConcurrentHashMap<>(); // reasons by ID
  private final Set<String> woven = ConcurrentHashMap.newKeySet(); // keys of methods that at least one loaded class reports
  private final Map<String, MethodSwitch> switches = new ConcurrentHashMap<>(); // by key of methods
  private final Map<String, Point> spans = new ConcurrentHashMap<>(); // of OpenTelemetry, by ID
  private final AtomicBoolean spansFound = new AtomicBoolean(); // since the last scan
  private final Set<Class<?>> scanned = Collections.newSetFromMap(new WeakHashMap<>());
  private final Callers callers = new Callers();
  private volatile Names onStacks = new Names(List.of());

  /** A method of the catalogue, or a variable of one. */
  private static final class Known {
    final Tracepoint tracepoint;
    final Variable variable; // null: a method
    final String className;
    final ClassFile.Method code;
    final String method; // name and descriptor

    Known(Tracepoint tracepoint, Variable variable, String className, ClassFile.Method code) {
      this.tracepoint = tracepoint;
      this.variable = variable;
      this.className = className;
      this.code = code;
      this.method = code.name + code.descriptor;
    }

    String key() {
      return className + "." + method;
    }
  }

  /**
   * Creates a registry without tracepoints.
   *
   * @param spansPerSecond limit of each tracepoint; that of all together is four times as high, not counting the fair share of each
   * @param restoreAfter seconds for which methods stay instrumented after the last change of tracepoints
   */
  public Registry(String service, OwnClasses own, Selection select, int spansPerSecond, int restoreAfter, Instrumentation instrumentation, SpansFactory factory, Log log) {
    this.service = service;
    this.own = own;
    this.unsure = new Unsure(log);
    this.select = select;
    this.spansPerSecond = spansPerSecond;
    this.restoreAfter = restoreAfter * 1_000_000_000L;
    this.total = new RateLimit(4 * spansPerSecond);
    this.instrumentation = instrumentation;
    this.loaders = new Loaders(instrumentation);
    this.factory = factory;
    this.log = log;
  }

  /** Begins to observe classes. */
  public void start() {
    Bridge.setSamplerWrapper(factory.samplers(this));
    if (select.spans) {
      Bridge.setSpanGate(factory.gate(this));
    }
    instrumentation.addTransformer(this, true);
    List<Class<?>> sdks = new ArrayList<>();
    for (Class<?> c : instrumentation.getAllLoadedClasses()) {
      if (c.getName().equals(SamplerHook.CLASS) || c.getName().equals(SpanHook.CLASS)) {
        sdks.add(c);
      }
    }
    retransform(sdks);
  }

  public Plans plans() {
    return plans;
  }

  /** Returns the spans per second of each enabled tracepoint that no other can use up. */
  int fairShare() {
    return 4 * spansPerSecond / enabledPoints;
  }

  /** Looks for new classes, and reports whether the catalogue changed. */
  public synchronized boolean scan() {
    boolean found = spansFound.getAndSet(false);
    boolean loaded = classesLoaded.getAndSet(false);
    boolean search = loaded || loading;
    loading = loaded; // a class is transformed before the JVM lists it
    if (!search) {
      return found;
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
      return found;
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
      callers.add(c, file, x -> own.contains(x.getName(), x.getClassLoader(), x.getProtectionDomain()));
      String reason = instrumentation.isModifiableClass(c) ? Refusal.ofLoaded(file, loaders.open(c.getClassLoader())) : "the JVM does not allow to change it";
      if (reason != null) {
        refused.put(name, reason);
        return;
      }
      names.remember(c);
      for (ClassFile.Method m : file.methods) {
        add(c, m);
      }
    } catch (Throwable t) {
      refused.put(name, "cannot read the class file: " + t);
    }
  }

  private void add(Class<?> c, ClassFile.Method m) throws IOException {
    if (m.isConstructor()) {
      return;
    }
    String code = c.getName() + "." + m.name;
    if (m.trivial && !select.areEntries.test(code) && !select.haveVariables.test(code)) {
      return;
    }
    Tracepoint t = Tracepoint.ofMethod(service, c.getName(), m.signature(), select.areEntries.test(code));
    if (add(t, null, c, m) && select.haveVariables.test(code)) {
      String[] parameters = ClassFile.parameterNames(c).get(m.name + m.descriptor);
      for (Variable v : Variable.of(m, parameters, type -> ClassFile.isEnum(type, c.getClassLoader()))) {
        add(Tracepoint.ofVariable(t, v.name), v, c, m);
      }
    }
  }

  /** Adds an entry to the catalogue, and reports whether there was room and no such entry. */
  private boolean add(Tracepoint t, Variable v, Class<?> c, ClassFile.Method m) {
    return t.isValid() && catalogue.size() < Limits.CATALOGUE && catalogue.putIfAbsent(t.id, new Known(t, v, c.getName(), m)) == null;
  }

  /** Returns the catalogue, ascending by ID, with the only callers of methods that are known now. */
  public synchronized List<Tracepoint> catalogue() {
    Map<String, String> methods = new HashMap<>(); // IDs by key
    catalogue.forEach(
        (id, k) -> {
          if (k.variable == null) {
            methods.put(k.key(), id);
          }
        });
    TreeMap<String, Tracepoint> all = new TreeMap<>();
    catalogue.forEach((id, k) -> all.put(id, k.variable == null ? belowCaller(k, methods) : k.tracepoint));
    spans.forEach((id, p) -> all.put(id, p.tracepoint));
    return new ArrayList<>(all.values());
  }

  /** Returns the ID of the tracepoint of a method on a stack, null if it has none. Lines tell overloaded methods apart. */
  public String tracepointAt(StackTraceElement frame) {
    Names all = onStacks;
    if (all.size != catalogue.size()) {
      onStacks = all = new Names(catalogue.values());
    }
    Known found = null;
    for (Known k : all.methods.getOrDefault(frame.getClassName() + "." + frame.getMethodName(), List.of())) {
      if (found == null || k.code.line <= frame.getLineNumber()) {
        found = k;
      }
    }
    return found == null ? null : found.tracepoint.id;
  }

  /** The methods of a catalogue by their names on stacks. */
  private static final class Names {
    final Map<String, List<Known>> methods = new HashMap<>(); // ascending by line
    final int size; // of the catalogue

    Names(Collection<Known> catalogue) {
      size = catalogue.size();
      for (Known k : catalogue) {
        if (k.variable == null) {
          methods.computeIfAbsent(k.tracepoint.code, x -> new ArrayList<>(1)).add(k);
        }
      }
      methods.values().forEach(list -> list.sort(Comparator.comparingInt(k -> k.code.line)));
    }
  }

  private Tracepoint belowCaller(Known method, Map<String, String> ids) {
    String caller = callers.of(method.className, method.code);
    String id = caller == null ? null : ids.get(caller);
    return id == null ? method.tracepoint : method.tracepoint.below(id);
  }

  /** Returns the tracepoint of spans of OpenTelemetry, null if there are too many or the protocol cannot carry it. */
  public Point spans(String scope, String name, String spanKind) {
    String id = Tracepoint.spanId(service, scope, name);
    Point known = spans.get(id);
    return known != null || spans.size() >= MAX_SPANS ? known : add(Tracepoint.ofSpan(service, scope, name, spanKind));
  }

  private Point add(Tracepoint t) {
    if (!t.isValid()) {
      return null;
    }
    Point p = spans.computeIfAbsent(t.id, x -> points.computeIfAbsent(x, y -> new Point(t, null, this, spansPerSecond)));
    spansFound.set(true);
    return p;
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
        points.computeIfAbsent(t.id, x -> new Point(t, k.variable, this, spansPerSecond));
        after.computeIfAbsent(k.className, x -> new HashSet<>()).add(k);
      }
    }
    enabledPoints = Math.max(1, after.values().stream().mapToInt(Set::size).sum());
    wanted.keySet().retainAll(after.keySet());
    wanted.putAll(after);
    Set<String> changed = changed(before, after);
    changed.forEach(name -> toggle(before.getOrDefault(name, Set.of()), after.getOrDefault(name, Set.of())));
    if (!changed.isEmpty()) {
      switched = System.nanoTime();
      restored = false;
    }
    changed.removeIf(name -> !hook(name, restoreAfter > 0));
    transform(changed);
  }

  /** Restores methods if no tracepoint has changed for a while. */
  public void restore() {
    restore(System.nanoTime());
  }

  /**
   * Restores the methods without enabled tracepoints, once no tracepoint has changed for a while. The JVM forgets how it
   * compiled the methods of a transformed class, which costs far more than disabled tracepoints, and searches return to
   * classes.
   *
   * @param now in ns, of the JVM's clock
   */
  synchronized void restore(long now) {
    if (restored || now - switched < restoreAfter) {
      return;
    }
    restored = true;
    Set<String> names = new HashSet<>(hooked.keySet());
    names.removeIf(name -> !hook(name, false));
    transform(names);
  }

  /** Sets the switches of the methods of a class. */
  private void toggle(Set<Known> before, Set<Known> after) {
    Map<String, Point> spans = new HashMap<>();
    Map<String, List<Point>> variables = new HashMap<>();
    before.forEach(k -> variables.put(k.key(), new ArrayList<>()));
    for (Known k : after) {
      List<Point> captured = variables.computeIfAbsent(k.key(), x -> new ArrayList<>());
      Point p = points.get(k.tracepoint.id);
      if (k.variable == null) {
        spans.put(k.key(), p);
      } else {
        captured.add(p);
      }
    }
    variables.forEach((method, captured) -> switchOf(method).set(spans.get(method), captured));
  }

  private MethodSwitch switchOf(String key) {
    return switches.computeIfAbsent(key, x -> new MethodSwitch());
  }

  /**
   * Determines the methods of a class to instrument: those with enabled tracepoints. It reports whether the class has to change.
   *
   * @param keep whether methods that are instrumented stay so
   */
  private boolean hook(String className, boolean keep) {
    Map<String, Boolean> methods = new HashMap<>();
    for (Known k : wanted.getOrDefault(className, Set.of())) {
      methods.merge(k.method, k.variable != null, Boolean::logicalOr);
    }
    Map<String, Boolean> before = hooked.getOrDefault(className, Map.of());
    boolean repair = broken.remove(className);
    if (!repair && (keep || changes.getOrDefault(className, 0) >= MAX_CHANGES)) {
      before.forEach((method, values) -> methods.merge(method, values, Boolean::logicalOr));
    }
    if (methods.equals(before) && !repair) {
      return false;
    }
    changes.merge(className, 1, Integer::sum);
    hooked.put(className, methods);
    return true;
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
        woven.remove(k.key());
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
    broken.add(className);
    for (Known k : wanted.getOrDefault(className, Set.of())) {
      woven.remove(k.key());
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
        return Loaders.findBridge(loader) ? SamplerHook.apply(bytes) : null;
      }
      if (name.equals(SpanHook.CLASS)) {
        return select.spans && Loaders.findBridge(loader) ? SpanHook.apply(bytes) : null;
      }
      if (!own.mayContain(name, loader, domain)) {
        return null;
      }
      if (redefined == null) {
        classesLoaded.set(true);
      }
      byte[] complete = names.restore(redefined, bytes);
      Map<String, Boolean> methods = hooked.getOrDefault(name, Map.of());
      if (!methods.isEmpty()) {
        return weave(loader, name, complete, methods);
      }
      return redefined == null ? null : complete;
    } catch (Throwable t) {
      fail(name, t);
      return null;
    }
  }

  /**
   * Instruments methods of a class.
   *
   * @param methods with whether to pass values
   */
  private byte[] weave(ClassLoader loader, String className, byte[] bytes, Map<String, Boolean> methods) {
    if (!Loaders.findBridge(loader)) {
      throw new IllegalStateException("the class loader " + loader + " hides the bootstrap class path");
    }
    Spans spans = factory.spansFor(loader);
    Map<String, Hook> hooks = new HashMap<>();
    methods.forEach((method, values) -> hooks.put(method, new Hook(switchOf(className + "." + method).probe(spans), values)));
    byte[] result = Weave.apply(bytes, hooks);
    methods.keySet().forEach(method -> woven.add(className + "." + method));
    return result;
  }

  /** The state of a tracepoint, for the status. */
  public static final class Outcome {
    public final String id;
    public final String state;
    public final String reason; // "": none
    public final Point point; // null: it was never enabled
    public final boolean incomplete; // too much of what it should have recorded since the last status is missing

    Outcome(String id, String state, String reason, Point point) {
      this.incomplete = state.equals("applied") && !reason.isEmpty();
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
    if (spans.containsKey(id)) {
      return applied(id);
    }
    Known k = catalogue.get(id);
    if (k == null) {
      return new Outcome(id, "unsupported", unknown(id), null);
    }
    String reason = planned ? failures.get(id) : null;
    if (reason == null && planned && !woven.contains(k.key())) {
      reason = "the class was unloaded";
    }
    return reason == null ? applied(id) : new Outcome(id, "failed", reason, points.get(id));
  }

  private Outcome applied(String id) {
    Point p = points.get(id);
    return new Outcome(id, "applied", p == null ? "" : p.judge(), p);
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
