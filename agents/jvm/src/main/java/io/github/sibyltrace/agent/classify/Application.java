package io.github.sibyltrace.agent.classify;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Where an application begins, and how it calls itself. It determines the features of packages relative to that, as
 * features.go does, which explains them.
 */
final class Application {
  private static final int MIXED_OWNERS = 5;

  private final Names names;
  private final List<String> main; // package of the main class; empty: unknown
  private final Set<Source> home; // the sources where it begins
  private final boolean mixed; // they also contain libraries
  private final Map<String, Double> owners = new HashMap<>(); // shares of their classes, by owner
  private final String folder; // of the main jar; "": unknown
  private final String outer; // path of the war, or of the jar of Spring Boot; "": none
  private String group = "";
  private String version = "";
  private String vendor = "";
  private final Set<String> words = new HashSet<>();

  /**
   * Describes an application.
   *
   * @param mainClass where it begins; "": unknown, or a container starts it
   * @param outer the war, or the jar of Spring Boot; null: none
   * @param home its folders of classes, otherwise the source with the main class
   */
  Application(Names names, String mainClass, Source outer, List<Source> home) {
    this.names = names;
    this.main = names.covers("launcher", mainClass) ? List.of() : Names.segments(Source.packageOf(mainClass));
    boolean known = !mainClass.isEmpty() && !names.covers("launcher", mainClass);
    boolean folders = home.stream().anyMatch(s -> s.kind == Source.Kind.FOLDER);
    this.home = new HashSet<>(folders || known ? home : List.of());
    this.outer = outer == null ? "" : outer.path;
    this.folder = folders || this.home.isEmpty() ? "" : home.get(0).folder();
    int total = 0;
    int coordinates = 0;
    for (Source s : this.home) {
      for (Map.Entry<String, Integer> p : s.packages.entrySet()) {
        owners.merge(names.ownerOf(p.getKey()), (double) p.getValue(), Double::sum);
        total += p.getValue();
      }
      coordinates += s.coordinates.size();
    }
    int classes = total;
    owners.replaceAll((owner, n) -> n / classes);
    mixed = owners.size() >= MIXED_OWNERS || coordinates > 1;
    identify(outer, home);
  }

  private void identify(Source outer, List<Source> sources) {
    List<Source> all = new ArrayList<>();
    if (outer != null) {
      all.add(outer);
    }
    for (Source s : sources) {
      if (home.contains(s)) {
        all.add(s);
      }
    }
    for (Source s : all) {
      Source.Coordinates id = s.identity();
      group = Source.first(group, id.group);
      version = Source.first(version, id.version);
      vendor = Source.first(vendor, s.vendor);
      if (s.kind != Source.Kind.FOLDER) {
        words.addAll(names.words(id.artifact));
      }
    }
    int n = names.owner(main);
    if (n > 0) {
      words.addAll(names.words(main.get(n - 1)));
    }
  }

  /** Returns the features of a package in a source, as names and values with a tab between them. */
  List<String> features(Source s, String pkg) {
    List<String> all = new ArrayList<>();
    add(all, "place", place(s));
    add(all, "kin", kin(pkg));
    add(all, "home", share(pkg));
    if (!home.contains(s) && !s.path.equals(outer)) { // the launcher in the application's jar has the names of the application
      Source.Coordinates id = s.identity();
      add(all, "group", relatedGroup(id.group));
      add(all, "version", same(version, id.version));
      add(all, "name", relatedName(id.artifact));
      add(all, "vendor", same(vendor, s.vendor));
    }
    add(all, "library", library(pkg));
    return all;
  }

  private static void add(List<String> all, String name, String value) {
    if (!value.isEmpty()) {
      all.add(name + "\t" + value);
    }
  }

  private String place(Source s) {
    if (s.kind == Source.Kind.FOLDER) {
      return "class folder";
    } else if (home.contains(s)) {
      return mixed ? "" : "main jar";
    } else if (s.kind == Source.Kind.LIBRARY) {
      return "library folder";
    } else if (folder.isEmpty()) {
      return "";
    }
    return (s.folder() + "/").startsWith(folder + "/") ? "near the main jar" : "elsewhere";
  }

  private String kin(String pkg) {
    if (main.isEmpty()) {
      return "";
    }
    List<String> p = Names.segments(pkg);
    int shared = 0;
    while (shared < Math.min(p.size(), main.size()) && p.get(shared).equals(main.get(shared))) {
      shared++;
    }
    int owner = names.owner(main);
    switch (Math.min(shared - owner, 2)) {
      case 2:
        return "owner and two more";
      case 1:
        return "owner and one more";
      case 0:
        return "owner";
      default:
        return owner >= 3 && shared == owner - 1 ? "umbrella" : "other owner";
    }
  }

  private String share(String pkg) {
    if (owners.isEmpty()) {
      return "";
    }
    double share = owners.getOrDefault(names.ownerOf(pkg), 0.0);
    return share >= 0.5 ? "most" : share >= 0.1 ? "many" : share > 0 ? "few" : "none";
  }

  private String mainOwner() {
    return String.join(".", main.subList(0, names.owner(main)));
  }

  private String relatedGroup(String other) {
    if (other.isEmpty()) {
      return "";
    }
    String owner = names.ownerOf(other);
    if (other.equals(group)) {
      return "same";
    } else if (!group.isEmpty() && owner.equals(names.ownerOf(group))
        || !main.isEmpty() && owner.equals(mainOwner())
        || owners.getOrDefault(owner, 0.0) >= 0.1) {
      return "same owner";
    }
    return group.isEmpty() && main.isEmpty() && owners.isEmpty() ? "" : "other";
  }

  private String relatedName(String artifact) {
    if (words.isEmpty()) {
      return "";
    }
    return names.words(artifact).stream().anyMatch(words::contains) ? "shared word" : "other";
  }

  private String library(String pkg) {
    boolean known = names.covers("library", pkg);
    boolean ofMain = !main.isEmpty() && names.ownerOf(pkg).equals(mainOwner());
    return known && !ofMain ? "yes" : "no";
  }

  private static String same(String a, String b) {
    if (a.isEmpty() || b.isEmpty()) {
      return "";
    }
    return a.equals(b) ? "same" : "other";
  }
}
