package io.github.sibyltrace.agent.classify;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.Iterator;
import java.util.List;
import java.util.Properties;
import java.util.jar.JarFile;
import java.util.jar.Manifest;
import java.util.stream.Stream;
import java.util.zip.Inflater;
import java.util.zip.InflaterInputStream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;

/** Reads what jars and folders say about themselves. */
final class Content {
  // Far above those of real applications, as in read.go.
  private static final int MAX_TEXT = 1 << 20;
  private static final int MAX_NESTED = 128 << 20;
  private static final int MAX_COORDINATES = 1000;
  private static final int MAX_FILES = 200_000;

  private final Source source;
  private final String prefix; // of the entries that belong to the source
  private final boolean withClasses;

  private Content(Source source, String prefix, boolean withClasses) {
    this.source = source;
    this.prefix = prefix;
    this.withClasses = withClasses;
  }

  /** Opens an entry. */
  private interface Opener {
    InputStream open() throws IOException;
  }

  /** Reads the entries below a prefix of a jar or a folder on disk into a source. */
  static void read(Source s, File file, String prefix, boolean withClasses) throws IOException {
    Content c = new Content(s, prefix, withClasses);
    if (file.isDirectory()) {
      c.readFolder(file.toPath());
    } else {
      c.readArchive(file);
    }
  }

  /** Reads a jar in a jar into a source. */
  static void readNested(Source s, File outer, String entry) throws IOException {
    try (ZipFile zip = new ZipFile(outer)) {
      ZipEntry e = zip.getEntry(entry);
      if (e == null || e.getSize() > MAX_NESTED) {
        return;
      }
      try (InputStream in = zip.getInputStream(e)) {
        new Content(s, "", false).readBytes(in.readNBytes(MAX_NESTED));
      }
    }
  }

  /** Returns the jars that the manifest of a jar adds to the class path. */
  static List<String> classPath(File jar) {
    if (!jar.isFile()) {
      return List.of();
    }
    try (JarFile f = new JarFile(jar)) {
      Manifest m = f.getManifest();
      String names = m == null ? null : m.getMainAttributes().getValue("Class-Path");
      List<String> all = new ArrayList<>();
      for (String name : names == null ? new String[0] : names.trim().split(" +")) {
        all.add(new Place(jar.toURI().resolve(name).toString()).outer);
      }
      return all;
    } catch (IOException | IllegalArgumentException e) {
      return List.of();
    }
  }

  /** Reports whether a jar has an entry. */
  static boolean has(File jar, String entry) {
    if (!jar.isFile()) {
      return false;
    }
    try (ZipFile f = new ZipFile(jar)) {
      return f.getEntry(entry) != null;
    } catch (IOException e) {
      return false;
    }
  }

  private void readFolder(Path root) throws IOException {
    Path top = root.resolve(prefix);
    if (!Files.isDirectory(top)) {
      return;
    }
    try (Stream<Path> files = Files.walk(withClasses ? top : top.resolve("META-INF"))) {
      for (Iterator<Path> i = files.limit(MAX_FILES).iterator(); i.hasNext(); ) {
        Path p = i.next();
        accept(prefix + top.relativize(p).toString().replace(File.separatorChar, '/'), () -> Files.newInputStream(p));
      }
    } catch (NoSuchFileException e) {
      // the folder has no META-INF
    }
  }

  private void readArchive(File file) throws IOException {
    try (ZipFile zip = new ZipFile(file)) {
      for (Enumeration<? extends ZipEntry> all = zip.entries(); all.hasMoreElements(); ) {
        ZipEntry e = all.nextElement();
        accept(e.getName(), () -> zip.getInputStream(e));
      }
    }
  }

  /** Reads a jar in memory by its central directory, so that entries that are not wanted are not unpacked. */
  private void readBytes(byte[] jar) throws IOException {
    ByteBuffer b = ByteBuffer.wrap(jar).order(ByteOrder.LITTLE_ENDIAN);
    int end = jar.length - 22;
    while (end >= 0 && b.getInt(end) != 0x06054b50) {
      end--;
    }
    int at = end < 0 ? -1 : b.getInt(end + 16);
    while (at >= 0 && at + 46 <= jar.length && b.getInt(at) == 0x02014b50) {
      int header = at;
      int name = b.getShort(at + 28) & 0xffff;
      accept(new String(jar, at + 46, Math.min(name, jar.length - at - 46), StandardCharsets.UTF_8), () -> open(b, header));
      at += 46 + name + (b.getShort(at + 30) & 0xffff) + (b.getShort(at + 32) & 0xffff);
    }
  }

  /** Opens an entry by its record in the central directory. */
  private static InputStream open(ByteBuffer b, int header) throws IOException {
    int local = b.getInt(header + 42);
    if (local < 0 || local + 30 > b.capacity()) {
      throw new IOException("the archive is truncated");
    }
    int start = local + 30 + (b.getShort(local + 26) & 0xffff) + (b.getShort(local + 28) & 0xffff);
    int size = b.getInt(header + 20);
    if (size < 0 || start + size > b.capacity()) {
      throw new IOException("the archive is truncated");
    }
    InputStream in = new ByteArrayInputStream(b.array(), start, size);
    return b.getShort(header + 10) == ZipEntry.DEFLATED ? new InflaterInputStream(in, new Inflater(true)) : in;
  }

  private void accept(String entry, Opener opener) throws IOException {
    if (!entry.startsWith(prefix)) {
      return;
    }
    String name = entry.substring(prefix.length());
    if (name.equalsIgnoreCase("META-INF/MANIFEST.MF")) {
      try (InputStream in = text(opener)) {
        source.setManifest(new Manifest(in).getMainAttributes());
      }
    } else if (name.startsWith("META-INF/maven/") && name.endsWith("/pom.properties")) {
      if (source.coordinates.size() < MAX_COORDINATES) {
        Properties p = new Properties();
        try (InputStream in = text(opener)) {
          p.load(in);
        }
        source.addCoordinates(p);
      }
    } else if (withClasses && !(prefix.isEmpty() && (name.startsWith("BOOT-INF/") || name.startsWith("WEB-INF/")))) {
      source.addClass(name);
    }
  }

  private static InputStream text(Opener opener) throws IOException {
    try (InputStream in = opener.open()) {
      return new ByteArrayInputStream(in.readNBytes(MAX_TEXT));
    }
  }
}
