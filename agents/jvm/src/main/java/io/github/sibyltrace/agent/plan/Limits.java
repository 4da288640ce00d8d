package io.github.sibyltrace.agent.plan;

import java.nio.charset.StandardCharsets;

/** Limits of the tracepoint protocol, as in agents/tracepoint/protocol/limits.go. */
public final class Limits {
  public static final int VERSION = 1; // of the protocol
  public static final int BODY = 8 << 20; // bytes
  public static final int TEXT = 256; // bytes
  public static final int REASON = 1024; // bytes
  public static final int CATALOGUE = 100_000;
  public static final int PAGE = 2000; // tracepoints
  public static final int OUTCOMES = 10_000;
  public static final int STACKS = 256; // operations
  public static final int FRAMES = 20_000; // of all stacks of a status
  static final int ARMS = 16;
  static final int FILTERS = 64;
  static final int ENABLED = 10_000;
  static final int LEASE = 3600; // seconds

  private Limits() {}

  /** Reports whether a text may be an identifier or a name. */
  public static boolean isName(String s) {
    return s != null && !s.isEmpty() && s.getBytes(StandardCharsets.UTF_8).length <= TEXT && s.codePoints().allMatch(Limits::isPrintable);
  }

  /** Truncates a text to a reason and replaces characters that are not printable. */
  public static String reason(String s) {
    StringBuilder b = new StringBuilder();
    int bytes = 0;
    for (int c : s.codePoints().toArray()) {
      int shown = isPrintable(c) ? c : '?';
      bytes += new String(Character.toChars(shown)).getBytes(StandardCharsets.UTF_8).length;
      if (bytes > REASON) {
        break;
      }
      b.appendCodePoint(shown);
    }
    return b.toString();
  }

  /** Reports whether Go's unicode.IsPrint holds, or less. */
  private static boolean isPrintable(int c) {
    if (c == ' ') {
      return true;
    }
    switch (Character.getType(c)) {
      case Character.CONTROL:
      case Character.FORMAT:
      case Character.PRIVATE_USE:
      case Character.SURROGATE:
      case Character.UNASSIGNED:
      case Character.LINE_SEPARATOR:
      case Character.PARAGRAPH_SEPARATOR:
      case Character.SPACE_SEPARATOR:
        return false;
      default:
        return true;
    }
  }
}
