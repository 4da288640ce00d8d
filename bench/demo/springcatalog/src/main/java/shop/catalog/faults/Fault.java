package shop.catalog.faults;

/** A kind of fault in a method, as Class.method. */
public record Fault(String kind, String method) {
  public static final Fault NONE = new Fault("", "");

  /** Parses "KIND METHOD". Everything else is no fault. */
  static Fault parse(String line) {
    String[] words = line.trim().split(" ");
    return words.length == 2 ? new Fault(words[0], words[1]) : NONE;
  }
}
