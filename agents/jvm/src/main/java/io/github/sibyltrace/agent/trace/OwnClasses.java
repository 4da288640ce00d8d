package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.classify.Classifier;
import io.github.sibyltrace.agent.weave.Refusal;
import java.net.URL;
import java.security.CodeSource;
import java.security.ProtectionDomain;
import java.util.Map;
import java.util.regex.Pattern;

/** Tells the application's own classes from those of libraries and of the JDK: by configuration, otherwise by a classifier. */
public final class OwnClasses {
  private final Pattern include; // null: no restriction
  private final Pattern own; // null: none
  private final Pattern exclude; // null: none
  private final Classifier classifier;

  /**
   * Selects classes by name; the whole name must match.
   *
   * @param include only these classes are own; null: the classifier decides
   * @param own classes that are own, whatever the classifier says; null: none
   * @param exclude classes that are not; null: none
   */
  public OwnClasses(Pattern include, Pattern own, Pattern exclude, Classifier classifier) {
    this.include = include;
    this.own = own;
    this.exclude = exclude;
    this.classifier = classifier;
  }

  /** Reports whether a class is the application's own. It may read the jar of the class. */
  boolean contains(String name, ClassLoader loader, ProtectionDomain domain) {
    Boolean configured = configured(name, loader, domain);
    return configured != null ? configured : classifier.isOwn(name, place(domain));
  }

  /** Reports whether a class may be the application's own. It is quick, for use while a class is being loaded. */
  boolean mayContain(String name, ClassLoader loader, ProtectionDomain domain) {
    Boolean configured = configured(name, loader, domain);
    return configured != null ? configured : !Boolean.FALSE.equals(classifier.known(name, place(domain)));
  }

  /** Returns the packages about which people should decide, and the decisions until they do. */
  Map<String, Boolean> unsure() {
    return classifier.unsure();
  }

  private Boolean configured(String name, ClassLoader loader, ProtectionDomain domain) {
    if (Refusal.ofPlatform(name, loader) || exclude != null && exclude.matcher(name).matches()) {
      return false;
    } else if (include != null) {
      return include.matcher(name).matches();
    } else if (own != null && own.matcher(name).matches()) {
      return true;
    }
    return place(domain).isEmpty() ? false : null;
  }

  /** Returns the location from which a class was loaded, empty if it is unknown. */
  private static String place(ProtectionDomain domain) {
    CodeSource source = domain == null ? null : domain.getCodeSource();
    URL url = source == null ? null : source.getLocation();
    return url == null ? "" : url.toString();
  }
}
