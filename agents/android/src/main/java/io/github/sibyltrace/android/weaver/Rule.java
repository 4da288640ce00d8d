package io.github.sibyltrace.android.weaver;

import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.objectweb.asm.Type;

/** One line of a file of rules, such as {@code wrap java.net.URL#openConnection() Http.openConnection}. */
final class Rule {
  /** What happens to the methods that a rule matches, or to the calls of them. */
  enum Kind {
    WRAP(true), // calls go to a wrapper, which calls the original
    REPLACE(true), // calls go to another method; the original is not called
    BRACKET(true), // a method runs before the call, and another one after it: for constructors, which cannot be replaced
    AROUND(false), // the method is a tracepoint with a kind of its own
    METHOD(false), // the method is a tracepoint
    NEVER(false); // the method stays as it is

    /** Whether the rule is about calls; otherwise, it is about bodies of methods. */
    final boolean ofCalls;

    Kind(boolean ofCalls) {
      this.ofCalls = ofCalls;
    }
  }

  /** The package of the wrappers whose names have no package. */
  static final String RUNTIME = "io.github.sibyltrace.android.";

  private static final Pattern LINE = Pattern.compile("(?<kind>\\w+)\\s+(?<owner>[^#+\\s]+)(?<below>\\+?)(?:#(?<method>[^(\\s]+)(?:\\((?<types>[^)]*)\\))?)?(?:\\s+(?<target>\\S+))?");

  private static final Pattern TOKEN = Pattern.compile("\\*\\*|[*{},]|[^*{},]+");
  private static final Map<String, String> SPECIAL = Map.of("**", ".*", "*", "[^.]*", "{", "(?:", ",", "|", "}", ")");

  final Kind kind;
  final String text;
  final String target; // of calls: class and method, which may be *; around: the kind of its tracepoints; "": none
  private final Pattern owner;
  private final boolean below; // subclasses, too
  private final Pattern method;
  private final String types; // of the parameters, separated by commas; null: any

  /** Reads a line without comment. It throws an {@link IllegalArgumentException} that says what to change. */
  Rule(String line) {
    Matcher m = LINE.matcher(line);
    if (!m.matches()) {
      throw new IllegalArgumentException("expected KIND CLASS#METHOD(TYPES) TARGET, as in: wrap java.net.URL#openConnection() Http.openConnection");
    }
    kind = kind(m.group("kind"));
    text = line.replaceAll("\\s+", " ");
    owner = glob(m.group("owner"));
    below = !m.group("below").isEmpty();
    method = glob(m.group("method") == null ? "*" : m.group("method"));
    types = m.group("types") == null || m.group("types").equals("*") ? null : m.group("types").replace(" ", "");
    String given = m.group("target") == null ? "" : m.group("target");
    boolean wanted = kind.ofCalls || kind == Kind.AROUND;
    if (wanted == given.isEmpty()) {
      throw new IllegalArgumentException(wanted ? "add the target, as in Http.openConnection" : "remove the target " + given);
    }
    if (kind.ofCalls && given.indexOf('.') < 0) {
      throw new IllegalArgumentException("the target " + given + " must have a class and a method, as in Http.openConnection");
    }
    target = kind.ofCalls && given.indexOf('.') == given.lastIndexOf('.') ? RUNTIME + given : given;
  }

  private static Kind kind(String name) {
    for (Kind k : Kind.values()) {
      if (k.name().toLowerCase(Locale.ROOT).equals(name)) {
        return k;
      }
    }
    throw new IllegalArgumentException("unknown kind " + name + ": use wrap, replace, bracket, around, method or never");
  }

  /** Compiles a pattern of names: ** stands for any text, * for any text without a dot, {a,b} for a or b. */
  private static Pattern glob(String names) {
    StringBuilder b = new StringBuilder();
    Matcher m = TOKEN.matcher(names);
    while (m.find()) {
      String special = SPECIAL.get(m.group());
      b.append(special == null ? Pattern.quote(m.group()) : special);
    }
    return Pattern.compile(b.toString());
  }

  /** Reports whether the rule is about a method, whose class has dots. */
  boolean matches(String className, String name, String descriptor, Types known) {
    if (!method.matcher(name).matches() || types != null && !types.equals(typesOf(descriptor))) {
      return false;
    }
    return owner.matcher(className).matches() || below && known.supertypes(className).stream().anyMatch(t -> owner.matcher(t).matches());
  }

  private static String typesOf(String descriptor) {
    StringBuilder b = new StringBuilder();
    for (Type t : Type.getArgumentTypes(descriptor)) {
      b.append(b.length() == 0 ? "" : ",").append(t.getClassName());
    }
    return b.toString();
  }

  /** Returns the kind of the tracepoints that the rule makes. */
  String tracepointKind() {
    return kind == Kind.AROUND ? target : "method";
  }

  /** Returns the class that a call which the rule matches is sent to, with slashes. */
  String targetClass() {
    return target.substring(0, target.lastIndexOf('.')).replace('.', '/');
  }

  /** Returns the method that calls of a method are sent to: one of the same name if the target ends with *. */
  String targetMethod(String called) {
    String name = target.substring(target.lastIndexOf('.') + 1);
    return name.equals("*") ? called : name;
  }

  /** Returns the first supertype of a class, or the class itself, that the rule names: the type of the wrapper's receiver. */
  String receiver(String className, Types known) {
    if (owner.matcher(className).matches()) {
      return className;
    }
    return known.supertypes(className).stream().filter(t -> owner.matcher(t).matches()).findFirst().orElse(className);
  }
}
