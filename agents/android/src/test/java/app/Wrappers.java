package app;

/** The targets of the rules of tests. */
public final class Wrappers {
  private Wrappers() {}

  public static String load(Library l, String from, int n) {
    Library.LOG.add("wrapper");
    return l.load(from, n);
  }

  public static long count(String of) {
    Library.LOG.add("wrapper");
    return Library.count(of);
  }

  public static void nothing(Library l, String text) {}

  public static void makeBegins() {
    Library.LOG.add("begin");
  }

  public static void makeEnds() {
    Library.LOG.add("end");
  }
}
