package waits;

import com.sun.net.httpserver.HttpServer;
import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Scope;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigInteger;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.DatagramPacket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * A service whose threads wait inside and outside of spans. It prints its port. A request makes it wait, and is answered
 * with all waits, 48 bytes each: thread, begin, end in ns of the monotonic clock, trace and span, which are zero where the
 * wait belongs to no sampled span, or to a virtual thread.
 */
public final class Waits {
  private static final int THREADS = 8;
  private static final int ROUNDS = Integer.getInteger("rounds", 60);
  private static final int SIZE = 48;

  private static final Tracer TRACER = GlobalOpenTelemetry.getTracer("waits");
  private static final ExecutorService POOL = Executors.newFixedThreadPool(THREADS);
  private static final ExecutorService OTHERS = Executors.newFixedThreadPool(THREADS);
  private static final ExecutorService VIRTUAL = virtual();
  private static final Object LOCK = new Object();

  private final FileChannel file;
  private final DatagramSocket socket;

  private Waits() throws IOException {
    file = FileChannel.open(Files.createTempFile("waits", ""), StandardOpenOption.WRITE, StandardOpenOption.DELETE_ON_CLOSE);
    socket = new DatagramSocket(0, InetAddress.getLoopbackAddress());
    socket.setSoTimeout(1);
  }

  public static void main(String[] args) throws IOException {
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 4);
    server.createContext(
        "/",
        x -> {
          byte[] body;
          try {
            body = run();
          } catch (Exception e) {
            body = e.toString().getBytes(StandardCharsets.UTF_8);
          }
          x.sendResponseHeaders(200, body.length);
          x.getResponseBody().write(body);
          x.close();
        });
    server.start();
    System.out.println("port " + server.getAddress().getPort());
    System.out.flush();
  }

  private static ExecutorService virtual() {
    try { // since Java 21
      return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }

  private static byte[] run() throws Exception {
    List<Future<List<byte[]>>> parts = new ArrayList<>();
    for (int i = 0; i < THREADS; i++) {
      Waits w = new Waits();
      parts.add(POOL.submit(w::requests));
      if (VIRTUAL != null) {
        parts.add(VIRTUAL.submit(new Waits()::virtualRequests));
      }
    }
    ByteBuffer all = ByteBuffer.allocate(1 << 24);
    for (Future<List<byte[]>> p : parts) {
      p.get().forEach(all::put);
    }
    byte[] body = new byte[all.position()];
    all.flip().get(body);
    return body;
  }

  /** Serves requests: each waits in its span, in one below, in one below on another thread, and after all of them. */
  private List<byte[]> requests() throws Exception {
    List<byte[]> calls = new ArrayList<>();
    for (int i = 0; i < ROUNDS; i++) {
      Span entry = TRACER.spanBuilder("GET /").setNoParent().setSpanKind(SpanKind.SERVER).startSpan();
      try (Scope s = entry.makeCurrent()) {
        calls.add(call());
        Span query = TRACER.spanBuilder("query").startSpan();
        try (Scope inner = query.makeCurrent()) {
          calls.add(call());
          calls.add(OTHERS.submit(this::call).get()); // OpenTelemetry's Java agent passes the context on
        }
        query.end();
        calls.add(call());
      }
      entry.end();
      calls.add(call());
    }
    return calls;
  }

  /** Waits in spans of virtual threads. While one waits for a file, so does the thread that carries it. */
  private List<byte[]> virtualRequests() throws Exception {
    List<byte[]> calls = new ArrayList<>();
    for (int i = 0; i < ROUNDS; i++) {
      Span entry = TRACER.spanBuilder("GET /virtual").setNoParent().setSpanKind(SpanKind.SERVER).startSpan();
      try (Scope s = entry.makeCurrent()) {
        int before = thread();
        long from = System.nanoTime();
        file.write(ByteBuffer.allocate(1), 0);
        file.force(true);
        long to = System.nanoTime();
        if (thread() == before) {
          calls.add(encode(before, from, to, SpanContext.getInvalid()));
        }
        Thread.sleep(1);
      }
      entry.end();
    }
    return calls;
  }

  /** Waits for the current span. */
  private byte[] call() throws Exception {
    int thread = thread();
    Callable<?> wait = wait(ThreadLocalRandom.current().nextInt(5));
    long from = System.nanoTime();
    wait.call();
    return encode(thread, from, System.nanoTime(), Span.current().getSpanContext());
  }

  private Callable<?> wait(int kind) {
    switch (kind) {
      case 0:
        return () -> {
          Thread.sleep(1);
          return null;
        };
      case 1:
        return () -> {
          LockSupport.parkNanos(200_000);
          return null;
        };
      case 2:
        return () -> {
          synchronized (LOCK) { // with the other threads
            LOCK.wait(1);
          }
          return null;
        };
      case 3:
        return () -> {
          file.write(ByteBuffer.allocate(1), 0);
          file.force(true);
          return null;
        };
      default:
        return () -> {
          try {
            socket.receive(new DatagramPacket(new byte[1], 1));
          } catch (SocketTimeoutException e) {
            // nobody sends
          }
          return null;
        };
    }
  }

  private static int thread() throws IOException {
    try (InputStream in = new FileInputStream("/proc/thread-self/stat")) {
      String stat = new String(in.readAllBytes(), StandardCharsets.ISO_8859_1);
      return Integer.parseInt(stat.substring(0, stat.indexOf(' ')));
    }
  }

  private static byte[] encode(int thread, long from, long to, SpanContext span) {
    ByteBuffer b = ByteBuffer.allocate(SIZE).order(ByteOrder.LITTLE_ENDIAN);
    b.putLong(thread).putLong(from).putLong(to);
    if (span.isSampled()) {
      b.put(digits(span.getTraceId())).put(digits(span.getSpanId()));
    }
    return b.array();
  }

  private static byte[] digits(String hex) {
    byte[] all = new BigInteger("1" + hex, 16).toByteArray(); // keeps leading zeros
    return java.util.Arrays.copyOfRange(all, 1, all.length);
  }
}
