package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.weave.Refusal;
import java.io.File;
import java.net.URL;
import java.security.CodeSource;
import java.security.ProtectionDomain;
import java.util.regex.Pattern;

/** Tells the application's own classes from those of libraries and of the JDK. */
public final class OwnClasses {
  private static final String LAUNCHER = "org.springframework.boot.loader."; // in the jars of Spring Boot, beside BOOT-INF

  private final Pattern include; // null: decided by the place of the class
  private final Pattern exclude; // null: none
  private final String mainJar; // the jar that the command line names; "": none

  /**
   * Selects classes by name; the whole name must match.
   *
   * @param include null: classes in folders, in BOOT-INF/classes and WEB-INF/classes, and in the jar of {@code java -jar}
   * @param exclude null: no class is excluded
   */
  public OwnClasses(Pattern include, Pattern exclude) {
    this.include = include;
    this.exclude = exclude;
    String command = System.getProperty("sun.java.command", "").split(" ")[0];
    this.mainJar = command.endsWith(".jar") ? new File(command).getAbsoluteFile().toURI().getPath() : "";
  }

  boolean contains(String name, ClassLoader loader, ProtectionDomain domain) {
    if (Refusal.ofPlatform(name, loader) || exclude != null && exclude.matcher(name).matches()) {
      return false;
    }
    return include != null ? include.matcher(name).matches() : isOwn(place(domain)) && !name.startsWith(LAUNCHER);
  }

  private boolean isOwn(String place) {
    return place.contains("BOOT-INF/classes") || place.contains("WEB-INF/classes") || place.startsWith("file:") && (place.endsWith("/") || isMainJar(place));
  }

  private boolean isMainJar(String place) {
    return !mainJar.isEmpty() && place.endsWith(mainJar);
  }

  /** Returns the location from which a class was loaded, empty if it is unknown. */
  private static String place(ProtectionDomain domain) {
    CodeSource source = domain == null ? null : domain.getCodeSource();
    URL url = source == null ? null : source.getLocation();
    return url == null ? "" : url.toString();
  }
}
