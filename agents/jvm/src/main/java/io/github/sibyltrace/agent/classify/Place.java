package io.github.sibyltrace.agent.classify;

import java.io.File;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;

/** The place from which classes are loaded, as a loader names it by a URL. */
final class Place {
  private static final String[] SCHEMES = {"jar:", "war:", "nested:", "file:", "vfs:"};

  final String outer; // a file or a folder
  final String inner; // an entry in it, without slashes around it; "": all of it
  private final boolean folder;

  /** Parses URLs like {@code file:/app/lib/a.jar}, {@code jar:nested:/app.jar/!BOOT-INF/classes/!/} and {@code jar:file:/app.jar!/BOOT-INF/lib/a.jar!/}. */
  Place(String url) {
    String s = url;
    for (String scheme : SCHEMES) {
      s = s.startsWith(scheme) ? s.substring(scheme.length()) : s;
    }
    s = decode(s);
    folder = s.endsWith("/") && s.indexOf('!') < 0;
    s = s.endsWith("!/") ? s.substring(0, s.length() - 2) : s;
    int bang = s.indexOf('!');
    outer = real(new File(bang < 0 ? s : s.substring(0, bang)));
    inner = bang < 0 ? "" : strip(s.substring(bang + 1));
  }

  private static String decode(String s) {
    try {
      return URLDecoder.decode(s.replace("+", "%2B"), StandardCharsets.UTF_8);
    } catch (IllegalArgumentException e) {
      return s;
    }
  }

  private static String strip(String s) {
    return s.replaceAll("^/+|/+$", "");
  }

  /** Returns the path of a file with links resolved, with slashes. */
  static String real(File f) {
    try {
      return f.toPath().toRealPath().toString().replace(File.separatorChar, '/');
    } catch (IOException | RuntimeException e) {
      return f.getAbsolutePath().replace(File.separatorChar, '/');
    }
  }

  String path() {
    return inner.isEmpty() ? outer : outer + "!/" + inner;
  }

  Source.Kind kind() {
    if (folder || path().endsWith("-INF/classes")) {
      return Source.Kind.FOLDER;
    }
    return root().isEmpty() ? Source.Kind.JAR : Source.Kind.LIBRARY;
  }

  /** Returns the war or the jar of Spring Boot, packed or not, to which the place belongs; "": none. */
  String root() {
    if (inner.startsWith("BOOT-INF/") || inner.startsWith("WEB-INF/")) {
      return outer;
    }
    for (String inf : new String[] {"/BOOT-INF/", "/WEB-INF/"}) {
      int i = outer.indexOf(inf);
      if (i > 0) {
        return outer.substring(0, i);
      }
    }
    return "";
  }
}
