package io.github.sibyltrace.agent.profile;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;

/** The sums of all threads, as of one moment. */
final class Profile {
  /** The sums of one method. */
  static final class Method {
    final String name;
    long calls;
    long total; // ns, recursive calls counted once
    long own; // ns

    Method(String name) {
      this.name = name;
    }
  }

  /** The number of objects of one class. */
  static final class Objects {
    final String name;
    final long count;

    Objects(String name, long count) {
      this.name = name;
      this.count = count;
    }
  }

  final double seconds;
  final List<Method> methods;
  final List<Objects> objects;
  final Map<String, Long> stacks = new HashMap<>(); // own ns by names of methods, outermost first, joined by semicolons

  Profile(long nanos, Iterable<Node> roots, Iterable<ObjectProbe> constructed) {
    seconds = nanos / 1e9;
    Map<String, Method> byName = new HashMap<>();
    for (Node root : roots) {
      add(root, byName);
    }
    methods = new ArrayList<>(byName.values());
    objects = new ArrayList<>();
    for (ObjectProbe p : constructed) {
      if (p.count() > 0) {
        objects.add(new Objects(p.name, p.count()));
      }
    }
  }

  /** Makes a profile of calls and total times only. */
  Profile(long nanos, Collection<Method> methods) {
    seconds = nanos / 1e9;
    this.methods = List.copyOf(methods);
    objects = List.of();
  }

  /** Adds the nodes below a root. Trees may be deep, so it does not recurse. */
  private void add(Node root, Map<String, Method> byName) {
    ArrayDeque<Node> nodes = new ArrayDeque<>();
    ArrayDeque<String> paths = new ArrayDeque<>();
    nodes.push(root);
    paths.push("");
    while (!nodes.isEmpty()) {
      Node parent = nodes.pop();
      String path = paths.pop();
      for (Node n = parent.firstChild(); n != null; n = n.sibling()) {
        Method m = byName.computeIfAbsent(n.method.name, Method::new);
        m.calls += n.calls;
        m.own += n.own;
        m.total += n.outermost;
        String here = path.isEmpty() ? n.method.name : path + ";" + n.method.name;
        stacks.merge(here, n.own, Long::sum);
        nodes.push(n);
        paths.push(here);
      }
    }
  }

  List<Method> topMethods(ToLongFunction<Method> by, int n) {
    return methods.stream()
        .sorted(Comparator.comparingLong(by).reversed().thenComparing(m -> m.name))
        .limit(n)
        .collect(Collectors.toList());
  }

  List<Objects> topObjects(int n) {
    return objects.stream()
        .sorted(Comparator.<Objects>comparingLong(o -> o.count).reversed().thenComparing(o -> o.name))
        .limit(n)
        .collect(Collectors.toList());
  }
}
