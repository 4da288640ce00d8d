package io.github.sibyltrace.agent.classify;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/**
 * Tells an application's own classes from those of libraries, by the places from which they are loaded. {@code sibyl agent
 * jvm classify} decides alike, before the application runs. Safe for concurrent use.
 */
public final class Classifier {
  private final Names names;
  private final Model model;
  private final String mainClass; // "": unknown
  private final List<String> classPath; // paths of files
  private final Map<String, Decisions> places = new ConcurrentHashMap<>(); // by URL
  // Guarded by this:
  private final Map<String, Application> applications = new HashMap<>(); // by path; "": that of the class path
  private final Map<String, Source> homes = new HashMap<>(); // sources where applications begin, by path
  private final Map<String, Double> unsure = new TreeMap<>(); // log-odds by package

  /** The decisions about the packages of a source. */
  private static final class Decisions {
    final Source source;
    final Application application;
    final Map<String, Boolean> own = new ConcurrentHashMap<>(); // by package

    Decisions(Source source, Application application) {
      this.source = source;
      this.application = application;
    }
  }

  /**
   * Reads the model, for the application of this JVM.
   *
   * @param main the class where the application begins; null: as the JVM was started
   */
  public static Classifier ofProcess(String main) throws IOException {
    List<String> classPath = Arrays.asList(System.getProperty("java.class.path", "").split(File.pathSeparator));
    return new Classifier(main != null ? main : System.getProperty("sun.java.command", ""), classPath);
  }

  /** Describes where the application begins. */
  public String beginning() {
    if (mainClass.isEmpty() || names.covers("launcher", mainClass)) {
      return "the application is started by " + (mainClass.isEmpty() ? "an unknown class" : mainClass) + ": unless it is a war, name its own main class with main:CLASS";
    }
    return "the application begins with " + mainClass;
  }

  /**
   * Reads the model.
   *
   * @param command the main class or the jar with it, with the arguments of the program
   */
  public Classifier(String command, List<String> classPath) throws IOException {
    names = new Names(lines("names.txt"));
    model = new Model(lines("weights.txt"));
    this.classPath = classPath;
    mainClass = mainClass(command);
  }

  private static List<String> lines(String name) throws IOException {
    try (InputStream in = Classifier.class.getResourceAsStream(name)) {
      return new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8)).lines().collect(Collectors.toList());
    }
  }

  private static String mainClass(String command) {
    int end = (command + " ").indexOf(".jar ");
    if (end >= 0) {
      Source s = new Source("", Source.Kind.JAR);
      read(() -> Content.read(s, new File(command.substring(0, end + 4)), "", false));
      return s.mainClass;
    }
    String first = command.split(" ", 2)[0];
    return first.substring(first.indexOf('/') + 1); // a module may stand before it
  }

  /** Returns whether a class is the application's own, null if nothing of its place was classified yet. It reads no files. */
  public Boolean known(String className, String place) {
    Decisions d = places.get(place);
    return d == null ? null : d.own.get(Source.packageOf(className));
  }

  /** Reports whether a class is the application's own. It reads the jar from which the class was loaded once. */
  public boolean isOwn(String className, String place) {
    return places.computeIfAbsent(place, this::open).own.computeIfAbsent(Source.packageOf(className), p -> decide(place, p));
  }

  private boolean decide(String place, String pkg) {
    double odds = logOdds(place, pkg);
    if (model.isUnsure(odds)) {
      synchronized (this) {
        unsure.put(pkg, odds);
      }
    }
    return odds > 0;
  }

  /** Returns the log-odds that a package of a place is the application's own. */
  public double logOdds(String place, String pkg) {
    return model.logOdds(features(place, pkg));
  }

  /** Returns the features of a package, as names and values with a tab between them. */
  public List<String> features(String place, String pkg) {
    Decisions d = places.computeIfAbsent(place, this::open);
    return d.application.features(d.source, pkg);
  }

  /** Returns the packages about which people should decide, and the decisions until they do. */
  public synchronized Map<String, Boolean> unsure() {
    Map<String, Boolean> all = new LinkedHashMap<>();
    unsure.forEach((pkg, odds) -> all.put(pkg, odds > 0));
    return all;
  }

  /** Opens the source at a URL. */
  private Decisions open(String url) {
    Place p = new Place(url);
    File file = new File(p.outer);
    boolean launcher = p.inner.isEmpty() && Content.has(file, "BOOT-INF/classes/"); // of Spring Boot
    Source s = new Source(p.path(), launcher ? Source.Kind.LIBRARY : p.kind());
    if (p.inner.isEmpty()) {
      read(() -> Content.read(s, file, "", false));
    } else if (s.kind == Source.Kind.FOLDER) {
      read(() -> Content.read(s, file, p.inner + "/", false));
    } else {
      read(() -> Content.readNested(s, file, p.inner));
    }
    return decisions(s, launcher ? p.outer : p.root());
  }

  private synchronized Decisions decisions(Source s, String root) {
    Application a = application(root);
    return new Decisions(homes.getOrDefault(s.path, s), a);
  }

  private Application application(String root) {
    Application a = applications.get(root);
    if (a == null) {
      a = root.isEmpty() ? ofClassPath() : ofRoot(root);
      applications.put(root, a);
    }
    return a;
  }

  /** Describes a war, or a jar of Spring Boot. */
  private Application ofRoot(String root) {
    boolean folder = new File(root).isDirectory();
    Source outer = new Source(root, Source.Kind.LIBRARY);
    read(() -> Content.read(outer, new File(root), "", false));
    List<Source> home = new ArrayList<>();
    for (String inf : new String[] {"BOOT-INF", "WEB-INF"}) {
      Source s = new Source(root + (folder ? "/" : "!/") + inf + "/classes", Source.Kind.FOLDER);
      read(() -> Content.read(s, new File(root), inf + "/classes/", true));
      if (!s.packages.isEmpty()) {
        home.add(s);
        homes.put(s.path, s);
      }
    }
    return new Application(names, outer.mainClass, outer, home);
  }

  /** Describes the application of the class path. */
  private Application ofClassPath() {
    List<Source> folders = new ArrayList<>();
    Source mainJar = null;
    for (String entry : withManifests()) {
      File f = new File(entry);
      Source s = new Source(Place.real(f), f.isDirectory() ? Source.Kind.FOLDER : Source.Kind.JAR);
      if (s.kind == Source.Kind.FOLDER) {
        read(() -> Content.read(s, f, "", true));
        if (!s.packages.isEmpty()) {
          folders.add(s);
        }
      } else if (mainJar == null && folders.isEmpty() && !mainClass.isEmpty() && Content.has(f, mainClass.replace('.', '/') + ".class")) {
        read(() -> Content.read(s, f, "", true));
        mainJar = s;
      }
    }
    List<Source> home = !folders.isEmpty() ? folders : mainJar != null ? List.of(mainJar) : List.of();
    home.forEach(s -> homes.put(s.path, s));
    return new Application(names, mainClass, null, home);
  }

  /** Returns the class path with the jars that manifests of its jars add to it. */
  private List<String> withManifests() {
    List<String> all = new ArrayList<>(classPath);
    for (String entry : classPath) {
      for (String other : Content.classPath(new File(entry))) {
        if (!all.contains(other)) {
          all.add(other);
        }
      }
    }
    return all;
  }

  private interface Reading {
    void run() throws IOException;
  }

  /** Reads what can be read: a source that cannot is judged without its metadata. */
  private static void read(Reading r) {
    try {
      r.run();
    } catch (IOException | RuntimeException e) {
      // judged without
    }
  }
}
