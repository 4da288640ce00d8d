package io.github.sibyltrace.agent.classify;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.jar.Attributes;

/** A jar or a folder with classes. */
final class Source {
  enum Kind {
    FOLDER, // class files in a folder, BOOT-INF/classes or WEB-INF/classes
    JAR, // a jar of the class path
    LIBRARY // a jar in BOOT-INF/lib or WEB-INF/lib
  }

  /** What identifies an artifact of Maven; empty: unknown. */
  static final class Coordinates {
    final String group;
    final String artifact;
    final String version;

    Coordinates(String group, String artifact, String version) {
      this.group = group;
      this.artifact = artifact;
      this.version = version;
    }
  }

  final String path; // with slashes
  final Kind kind;
  final Map<String, Integer> packages = new HashMap<>(); // classes by package; read only where the application may begin
  final List<Coordinates> coordinates = new ArrayList<>();
  String mainClass = ""; // of the manifest
  String vendor = "";
  String version = "";

  Source(String path, Kind kind) {
    this.path = path;
    this.kind = kind;
  }

  void setManifest(Attributes a) {
    mainClass = first(a.getValue("Start-Class"), a.getValue("Main-Class")).replace('/', '.'); // JVMs accept both
    vendor = first(a.getValue("Implementation-Vendor-Id"), a.getValue("Implementation-Vendor"), a.getValue("Bundle-Vendor"), a.getValue("Specification-Vendor"));
    version = first(a.getValue("Implementation-Version"), a.getValue("Bundle-Version"), a.getValue("Specification-Version"));
  }

  void addCoordinates(Properties p) {
    String artifact = p.getProperty("artifactId", "").trim();
    if (!artifact.isEmpty()) {
      coordinates.add(new Coordinates(p.getProperty("groupId", "").trim(), artifact, p.getProperty("version", "").trim()));
    }
  }

  void addClass(String entry) {
    if (entry.endsWith(".class") && !entry.startsWith("META-INF/") && !entry.endsWith("module-info.class")) {
      packages.merge(packageOf(entry.substring(0, entry.length() - ".class".length()).replace('/', '.')), 1, Integer::sum);
    }
  }

  static String packageOf(String className) {
    return className.substring(0, Math.max(0, className.lastIndexOf('.')));
  }

  String folder() {
    return path.substring(0, Math.max(0, path.lastIndexOf('/')));
  }

  /**
   * Returns the coordinates of the artifact that the source is: of several, those with which its file name begins.
   * Without such it returns what the file name and the manifest say.
   */
  Coordinates identity() {
    String base = path.substring(path.lastIndexOf('/') + 1);
    int dot = base.lastIndexOf('.');
    base = dot < 0 ? base : base.substring(0, dot);
    Coordinates best = null;
    for (Coordinates c : coordinates) {
      boolean named = base.equals(c.artifact) || base.startsWith(c.artifact + "-");
      if (coordinates.size() == 1 || named && (best == null || c.artifact.length() > best.artifact.length())) {
        best = c;
      }
    }
    return best != null ? best : ofFileName(base);
  }

  private Coordinates ofFileName(String base) {
    for (int i = 0; i + 1 < base.length(); i++) {
      if (base.charAt(i) == '-' && base.charAt(i + 1) >= '0' && base.charAt(i + 1) <= '9') {
        return new Coordinates("", base.substring(0, i), base.substring(i + 1));
      }
    }
    return new Coordinates("", base, version);
  }

  /** Returns the first value that is neither null nor blank, without blanks around it. */
  static String first(String... values) {
    for (String v : values) {
      if (v != null && !v.isBlank()) {
        return v.trim();
      }
    }
    return "";
  }
}
