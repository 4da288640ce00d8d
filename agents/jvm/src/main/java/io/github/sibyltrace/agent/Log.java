package io.github.sibyltrace.agent;

import java.io.PrintStream;
import java.util.Locale;

/** Writes the agent's own messages, one a line. */
public final class Log {
  /** Levels, the most important first. */
  public enum Level {
    ERROR,
    WARN,
    INFO,
    DEBUG;

    /** Parses a name or a number from 0. */
    static Level parse(String text) {
      for (Level l : values()) {
        if (l.name().equalsIgnoreCase(text) || Integer.toString(l.ordinal()).equals(text)) {
          return l;
        }
      }
      throw new IllegalArgumentException("debug: \"" + text + "\" is not error, warn, info, debug or 0 to 3");
    }
  }

  private final PrintStream out;
  private volatile Level level;

  public Log(PrintStream out, Level level) {
    this.out = out;
    this.level = level;
  }

  void setLevel(Level level) {
    this.level = level;
  }

  public void error(String message) {
    write(Level.ERROR, message);
  }

  /** Writes an error with its cause, at level DEBUG with its stack. */
  public void error(String message, Throwable cause) {
    write(Level.ERROR, message + ": " + cause);
    if (level == Level.DEBUG) {
      cause.printStackTrace(out);
    }
  }

  public void warn(String message) {
    write(Level.WARN, message);
  }

  public void info(String message) {
    write(Level.INFO, message);
  }

  public void debug(String message) {
    write(Level.DEBUG, message);
  }

  private void write(Level of, String message) {
    if (of.compareTo(level) <= 0) {
      out.println("sibyl-agent: " + of.name().toLowerCase(Locale.ROOT) + ": " + message);
    }
  }
}
