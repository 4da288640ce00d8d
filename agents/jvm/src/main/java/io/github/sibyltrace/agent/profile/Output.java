package io.github.sibyltrace.agent.profile;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.stream.Collectors;

/** Writes reports and traced calls. */
final class Output {
  private static final String OURS = "io.github.sibyltrace.agent.";

  private final PrintStream stream;

  /**
   * Opens an output.
   *
   * @param file null: the standard error
   */
  Output(String file) throws IOException {
    stream = file == null ? System.err : new PrintStream(new FileOutputStream(file), true, StandardCharsets.UTF_8);
  }

  void write(String text) {
    stream.print(text);
    stream.flush();
  }

  /** Writes a call of the method with the given name, and its callers. */
  void call(String name) {
    String callers =
        StackWalker.getInstance()
            .walk(
                s ->
                    s.dropWhile(f -> f.getClassName().startsWith(OURS))
                        .skip(1) // the method itself
                        .map(f -> "\tat " + f.toStackTraceElement() + "\n")
                        .collect(Collectors.joining()));
    write("call " + name + " [" + Thread.currentThread().getName() + "]\n" + callers);
  }
}
