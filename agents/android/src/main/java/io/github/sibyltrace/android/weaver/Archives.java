package io.github.sibyltrace.android.weaver;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import java.util.zip.ZipInputStream;
import java.util.zip.ZipOutputStream;

/** Reads and writes folders, jars and AARs, which are archives of jars. */
final class Archives implements Types.Source, Closeable {
  private final List<Types.Source> sources = new ArrayList<>();
  private final List<ZipFile> open = new ArrayList<>();

  /** Adds a folder, jar or AAR whose classes others may extend. */
  void add(Path path) throws IOException {
    if (Files.isDirectory(path)) {
      sources.add(
          name -> {
            Path file = path.resolve(name + ".class");
            return Files.exists(file) ? Files.readAllBytes(file) : null;
          });
      return;
    }
    ZipFile zip = new ZipFile(path.toFile());
    open.add(zip);
    sources.add(
        name -> {
          ZipEntry e = zip.getEntry(name + ".class");
          return e == null ? null : readAll(zip, e);
        });
    for (ZipEntry e : zip.stream().filter(Archives::isNested).collect(Collectors.toList())) {
      Map<String, byte[]> classes = new HashMap<>();
      try (ZipInputStream in = new ZipInputStream(zip.getInputStream(e))) {
        for (ZipEntry c = in.getNextEntry(); c != null; c = in.getNextEntry()) {
          classes.put(c.getName(), in.readAllBytes());
        }
      }
      sources.add(name -> classes.get(name + ".class"));
    }
  }

  private static byte[] readAll(ZipFile zip, ZipEntry e) throws IOException {
    try (InputStream in = zip.getInputStream(e)) {
      return in.readAllBytes();
    }
  }

  @Override
  public byte[] find(String internalName) throws IOException {
    for (Types.Source s : sources) {
      byte[] found = s.find(internalName);
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  @Override
  public void close() throws IOException {
    for (ZipFile z : open) {
      z.close();
    }
  }

  /** Writes a folder, jar or AAR with its classes woven, and all else as it is. */
  static void weave(Path from, Path to, Weaver weaver) throws IOException {
    if (!Files.isDirectory(from)) {
      try (InputStream in = Files.newInputStream(from); OutputStream out = Files.newOutputStream(to)) {
        weave(in, out, weaver);
      }
      return;
    }
    List<Path> files;
    try (Stream<Path> walk = Files.walk(from)) {
      files = walk.filter(Files::isRegularFile).sorted().collect(Collectors.toList()); // so that numbers do not depend on the disk
    }
    for (Path file : files) {
      Path copy = to.resolve(from.relativize(file).toString());
      Files.createDirectories(copy.getParent());
      Files.write(copy, weave(from.relativize(file).toString(), Files.readAllBytes(file), weaver));
    }
  }

  private static void weave(InputStream from, OutputStream to, Weaver weaver) throws IOException {
    ZipInputStream in = new ZipInputStream(from);
    ZipOutputStream out = new ZipOutputStream(to);
    for (ZipEntry e = in.getNextEntry(); e != null; e = in.getNextEntry()) {
      ZipEntry copy = new ZipEntry(e.getName());
      copy.setTime(e.getTime()); // equal inputs have equal outputs
      out.putNextEntry(copy);
      if (isNested(e)) {
        ByteArrayOutputStream jar = new ByteArrayOutputStream();
        weave(new ByteArrayInputStream(in.readAllBytes()), jar, weaver);
        jar.writeTo(out);
      } else {
        out.write(weave(e.getName(), in.readAllBytes(), weaver));
      }
      out.closeEntry();
    }
    out.finish();
  }

  private static byte[] weave(String name, byte[] content, Weaver weaver) {
    boolean isClass = name.endsWith(".class") && !name.startsWith("META-INF/") && !name.endsWith("module-info.class");
    return isClass ? weaver.weave(name, content) : content;
  }

  /** Reports whether a file of an AAR is one of its jars. Other jars in it, such as lint.jar, do not reach the phone. */
  private static boolean isNested(ZipEntry e) {
    return e.getName().equals("classes.jar") || e.getName().matches("libs/[^/]*\\.jar");
  }
}
