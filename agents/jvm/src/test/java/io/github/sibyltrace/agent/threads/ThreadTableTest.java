package io.github.sibyltrace.agent.threads;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.sibyltrace.agent.Log;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Reads the table as the kernel agent does: from the memory of the process. */
class ThreadTableTest {
  private static final String TRACE = "0123456789abcdef0123456789abcdef";
  private static final String SPAN = "fedcba9876543210";
  private static final Log LOG = new Log(System.err, Log.Level.WARN);

  private static ThreadTable table;
  private static long address;

  @BeforeAll
  static void create() throws IOException {
    assumeTrue(new File("/proc/thread-self").exists(), "needs Linux");
    table = ThreadTable.create("resource".getBytes(StandardCharsets.UTF_8), LOG);
    for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
      if (line.contains("/sibyl-threads-")) {
        address = Long.parseLong(line.substring(0, line.indexOf('-')), 16);
        assertTrue(line.contains("rw-p") && line.endsWith("(deleted)"), line);
      }
    }
  }

  private static ByteBuffer read(long at, int size) throws IOException {
    byte[] bytes = new byte[size];
    try (RandomAccessFile memory = new RandomAccessFile("/proc/self/mem", "r")) {
      memory.seek(at);
      memory.readFully(bytes);
    }
    return ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
  }

  private static String text(ByteBuffer b, int from, int length) {
    return new String(b.array(), from, length, StandardCharsets.UTF_8);
  }

  @Test
  void beginsWithTheContextOfTheProcess() throws IOException {
    ByteBuffer page = read(address, 4096);
    assertEquals("OTEL_CTX", text(page, 0, 8));
    assertEquals(2, page.getInt(8));
    assertEquals("resource", text(read(page.getLong(24), page.getInt(12)), 0, 8));
    assertTrue(page.getLong(16) != 0);
    assertEquals("SIBYLTHR", text(page, 32, 8));
    assertEquals(1, page.getInt(40));
    assertEquals(ThreadTable.SLOTS, page.getInt(44));
  }

  @Test
  void threadsHaveRecords() throws IOException {
    ThreadSlot slot = table.current();
    assertSame(slot, table.current());
    String stat = new String(Files.readAllBytes(Path.of("/proc/thread-self/stat")), StandardCharsets.ISO_8859_1);
    int number = Integer.parseInt(stat.substring(0, stat.indexOf(' ')));
    long at = address + 4096 + 64L * (number % ThreadTable.SLOTS);
    slot.set(TRACE, SPAN, true);
    ByteBuffer record = read(at, 64);
    assertEquals(TRACE + SPAN, text(record, 0, 48));
    assertEquals(number, record.getInt(48));
    assertEquals(1, record.getInt(52));
    assertTrue(stat.contains(" " + record.getLong(56) + " "));
    slot.set(TRACE, SPAN, false);
    assertEquals(2, read(at, 64).getInt(52));
    slot.clear();
    assertEquals(0, read(at, 64).getInt(52));
  }

  @Test
  void otherThreadsHaveOtherRecords() throws Exception {
    ThreadSlot own = table.current();
    AtomicReference<ThreadSlot> other = new AtomicReference<>();
    Thread t = new Thread(() -> other.set(table.current()));
    t.start();
    t.join();
    assertNotSame(own, other.get());
  }

  @Test
  void interruptedThreadsHaveRecords() throws Exception {
    AtomicReference<ThreadSlot> found = new AtomicReference<>();
    AtomicReference<Boolean> interrupted = new AtomicReference<>();
    Thread t =
        new Thread(
            () -> {
              Thread.currentThread().interrupt();
              found.set(table.current());
              interrupted.set(Thread.interrupted());
            });
    t.start();
    t.join();
    assertTrue(found.get() != null && interrupted.get());
  }

  @Test
  void virtualThreadsHaveNone() throws Exception {
    ExecutorService virtual;
    try {
      virtual = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (NoSuchMethodException e) {
      assumeTrue(false, "virtual threads need Java 21");
      return;
    }
    assertNull(virtual.submit(() -> table.current()).get());
    virtual.shutdown();
  }

  @Test
  void resourcesAreBounded() {
    assertThrows(IOException.class, () -> ThreadTable.create(new byte[4096], LOG));
  }
}
