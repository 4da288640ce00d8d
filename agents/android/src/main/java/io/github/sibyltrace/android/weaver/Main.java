package io.github.sibyltrace.android.weaver;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The command line of the weaver. */
public final class Main {
  private static final String USAGE =
      "usage: java -jar sibyl-weaver.jar --service NAME -o FOLDER [OPTION]... JAR|AAR|FOLDER...\n"
          + "\n"
          + "Writes the JARs, AARs and folders of classes to FOLDER, woven.\n"
          + "\n"
          + "  --service NAME    name of the app in its traces\n"
          + "  -o FOLDER         where to write, with the names of the inputs\n"
          + "  --rules FILE      rules that come before the built-in ones; repeatable\n"
          + "  --lib JAR         classes that the inputs extend, such as android.jar; repeatable\n"
          + "  --catalogue FILE  where to list the tracepoints: number, kind and ID\n"
          + "  --explain         list each method and call that was woven, with its rule\n"
          + "  --strict          fail if anything was refused\n";

  private String service;
  private Path output;
  private Path catalogueFile;
  private boolean explain;
  private boolean strict;
  private final List<Path> rulesFiles = new ArrayList<>();
  private final List<Path> libraries = new ArrayList<>();
  private final List<Path> inputs = new ArrayList<>();

  private Main() {}

  public static void main(String[] args) {
    System.exit(run(args, System.out, System.err));
  }

  /** Returns the exit status: 1 if weaving failed, 2 if the arguments are wrong. */
  static int run(String[] args, PrintStream out, PrintStream err) {
    try {
      Main m = new Main();
      m.parse(args);
      return m.weave(out, err) ? 0 : 1;
    } catch (IllegalArgumentException e) {
      err.println("sibyl-weaver: " + e.getMessage() + "\n\n" + USAGE);
      return 2;
    } catch (NoSuchFileException e) {
      err.println("sibyl-weaver: " + e.getMessage() + ": no such file");
      return 1;
    } catch (IOException e) {
      err.println("sibyl-weaver: " + e.getMessage());
      return 1;
    }
  }

  private void parse(String[] args) {
    for (int i = 0; i < args.length; i++) {
      switch (args[i]) {
        case "--explain":
          explain = true;
          break;
        case "--strict":
          strict = true;
          break;
        case "--service":
          service = value(args, ++i);
          break;
        case "-o":
          output = Path.of(value(args, ++i));
          break;
        case "--catalogue":
          catalogueFile = Path.of(value(args, ++i));
          break;
        case "--rules":
          rulesFiles.add(Path.of(value(args, ++i)));
          break;
        case "--lib":
          libraries.add(Path.of(value(args, ++i)));
          break;
        default:
          if (args[i].startsWith("-")) {
            throw new IllegalArgumentException("unknown option " + args[i]);
          }
          inputs.add(Path.of(args[i]));
      }
    }
    if (service == null || output == null || inputs.isEmpty()) {
      throw new IllegalArgumentException("--service, -o and an input are required");
    }
    Set<Path> names = new HashSet<>();
    for (Path p : inputs) {
      if (!names.add(p.getFileName())) {
        throw new IllegalArgumentException("two inputs are named " + p.getFileName() + ": rename one");
      }
      if (p.toAbsolutePath().normalize().equals(output.resolve(p.getFileName()).toAbsolutePath().normalize())) {
        throw new IllegalArgumentException(p + " would be overwritten: choose another -o");
      }
    }
  }

  private static String value(String[] args, int i) {
    if (i == args.length) {
      throw new IllegalArgumentException(args[i - 1] + " needs a value");
    }
    return args[i];
  }

  private boolean weave(PrintStream out, PrintStream err) throws IOException {
    Catalogue catalogue = new Catalogue();
    Report report = new Report();
    try (Archives classPath = new Archives()) {
      for (Path p : inputs) {
        classPath.add(p);
      }
      for (Path p : libraries) {
        classPath.add(p);
      }
      Types types = new Types(classPath);
      Rules rules = new Rules(types);
      for (Path p : rulesFiles) {
        rules.addFile(p);
      }
      rules.addBuiltIn();
      Weaver weaver = new Weaver(rules, service, catalogue, report);
      Files.createDirectories(output);
      for (Path p : inputs) {
        Archives.weave(p, output.resolve(p.getFileName()), weaver);
      }
      if (!types.missing().isEmpty()) {
        err.println("sibyl-weaver: rules for subclasses may have missed some, as " + types.missing().size() + " classes were not found, such as "
            + types.missing().iterator().next() + ": add them with --lib");
      }
    }
    if (catalogueFile != null) {
      Files.writeString(catalogueFile, catalogue.toString());
    }
    if (explain) {
      report.decisions.forEach(out::println);
    }
    report.refusals.forEach(r -> err.println("refused: " + r));
    out.println(report);
    return !strict || report.refusals.isEmpty();
  }
}
