package app;

import java.util.ArrayList;
import java.util.List;

/** Stands for a library that the rules of tests are about. */
public class Library {
  public static final List<String> LOG = new ArrayList<>();

  public Library() {
    this("default");
  }

  public Library(String text) {
    LOG.add("new " + text);
  }

  public String load(String from, int n) {
    LOG.add("load " + from);
    return from + n;
  }

  public static long count(String of) {
    LOG.add("count");
    return of.length();
  }

  public void trace(String text) {
    LOG.add("trace " + text);
  }

  /** A subclass, whose calls of super are not for wrappers. */
  public static class Below extends Library {
    @Override
    public String load(String from, int n) {
      return "below " + super.load(from, n);
    }
  }
}
