package io.github.sibyltrace.agent.threads;

import io.github.sibyltrace.agent.Log;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;

/**
 * The spans that platform threads work for, in memory that the kernel agent finds by the name of the mapping, and reads
 * when a thread begins to wait. The memory is private: nothing of it is written to the file that it has its name from,
 * which is gone.
 *
 * <p>The first page has the resource of the process, laid out as OTEP 4719 demands, with a description of the table
 * behind the header. The record of a thread follows at its number modulo {@link #SLOTS}. Virtual threads have no record,
 * and neither have the threads that carry them: the kernel does not know which one of them waits.
 */
public final class ThreadTable {
  private static final String NAME = "sibyl-threads-"; // as in agents/kernel/resource
  static final int SLOTS = 1 << 15;
  private static final int PAGE = 4096;
  private static final int PAYLOAD = 64; // its place in the first page
  private static final int CONTEXT_VERSION = 2;
  private static final int TABLE_VERSION = 1;

  private final ByteBuffer memory;
  private final Log log;
  private final List<WeakReference<Thread>> owners = new ArrayList<>(); // of the slots; guarded by this
  private final ThreadLocal<ThreadSlot> slots = new ThreadLocal<>();

  private ThreadTable(ByteBuffer memory, Log log) {
    this.memory = memory;
    this.log = log;
    for (int i = 0; i < SLOTS; i++) {
      owners.add(null);
    }
  }

  /**
   * Creates the table of this process.
   *
   * @param resource a message of OTEP 4719 with the resource of the process
   */
  public static ThreadTable create(byte[] resource, Log log) throws IOException {
    if (resource.length > PAGE - PAYLOAD) {
      throw new IOException("the resource of the process has " + resource.length + " bytes");
    }
    if (numberOf(stat("self")) != ProcessHandle.current().pid()) {
      throw new IOException("/proc shows other process IDs than this process has");
    }
    File file = File.createTempFile(NAME, "");
    ByteBuffer memory;
    try (RandomAccessFile f = new RandomAccessFile(file, "rw")) {
      f.write(new byte[PAGE + SLOTS * ThreadSlot.SIZE]); // of a full disk this tells, access to memory could not
      memory = f.getChannel().map(FileChannel.MapMode.PRIVATE, 0, f.length()).order(ByteOrder.nativeOrder());
      describe(memory, resource, address(file));
    } finally {
      Files.delete(file.toPath());
    }
    return new ThreadTable(memory, log);
  }

  /** Writes the first page. Its signature comes last. */
  private static void describe(ByteBuffer memory, byte[] resource, long address) {
    for (int i = 0; i < resource.length; i++) {
      memory.put(PAYLOAD + i, resource[i]);
    }
    memory.putInt(8, CONTEXT_VERSION).putInt(12, resource.length);
    memory.putLong(16, System.currentTimeMillis() * 1_000_000).putLong(24, address + PAYLOAD);
    memory.putInt(40, TABLE_VERSION).putInt(44, SLOTS);
    byte[] signatures = "OTEL_CTXSIBYLTHR".getBytes(StandardCharsets.US_ASCII);
    for (int i = 0; i < 8; i++) {
      memory.put(32 + i, signatures[8 + i]);
      memory.put(i, signatures[i]);
    }
  }

  /** Returns where a file is in the memory of this process. */
  private static long address(File file) throws IOException {
    for (String line : read("/proc/self/maps").split("\n")) {
      if (line.contains("/" + file.getName())) {
        return Long.parseUnsignedLong(line.substring(0, line.indexOf('-')), 16);
      }
    }
    throw new IOException("/proc/self/maps lacks the table");
  }

  /** Returns the record of the current thread, null if it has none. */
  public ThreadSlot current() {
    if (VirtualThreads.isVirtual(Thread.currentThread())) {
      return null;
    }
    ThreadSlot s = slots.get();
    if (s == null) {
      s = register(Thread.currentThread());
    }
    return s == ThreadSlot.NONE ? null : s;
  }

  private ThreadSlot register(Thread t) {
    slots.set(ThreadSlot.NONE);
    if (VirtualThreads.isCarrier(t)) {
      return ThreadSlot.NONE;
    }
    try {
      String stat = stat("thread-self");
      int number = numberOf(stat);
      if (occupy(number % SLOTS, t)) {
        ThreadSlot s = new ThreadSlot(memory, PAGE + number % SLOTS * ThreadSlot.SIZE, number, startOf(stat));
        slots.set(s);
        return s;
      }
      log.info("waits of " + t.getName() + " have no spans: another thread has its place");
    } catch (IOException | RuntimeException e) {
      log.info("waits of " + t.getName() + " have no spans: " + e);
    }
    return ThreadSlot.NONE;
  }

  /** Gives a slot to a thread, unless it belongs to another one that lives. */
  private synchronized boolean occupy(int slot, Thread t) {
    WeakReference<Thread> owner = owners.get(slot);
    Thread other = owner == null ? null : owner.get();
    if (other != null && other != t && other.isAlive()) {
      return false;
    }
    owners.set(slot, new WeakReference<>(t));
    return true;
  }

  private static String stat(String of) throws IOException {
    return read("/proc/" + of + "/stat");
  }

  /** Returns the contents of a file. It does not fail in a thread that is interrupted, as channels do. */
  private static String read(String file) throws IOException {
    try (InputStream in = new FileInputStream(file)) {
      return new String(in.readAllBytes(), StandardCharsets.ISO_8859_1);
    }
  }

  private static int numberOf(String stat) {
    return Integer.parseInt(stat.substring(0, stat.indexOf(' ')));
  }

  /** Returns the start of a thread, in ticks since the start of the machine: the 22nd field; the second one may contain spaces. */
  private static long startOf(String stat) {
    return Long.parseLong(stat.substring(stat.lastIndexOf(')') + 2).split(" ")[22 - 3]);
  }
}
