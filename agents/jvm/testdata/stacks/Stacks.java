package stacks;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A service on loopback. It prints its port. Each fourth request is slow: it waits in the overload of reserve for texts,
 * and in the thread of another executor.
 */
public final class Stacks {
  private static final AtomicInteger REQUESTS = new AtomicInteger();
  private static final ExecutorService OTHERS = others();

  public static void main(String[] args) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 256);
    server.createContext("/", Stacks::answer);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.start();
    System.out.println("port " + server.getAddress().getPort());
    System.out.flush();
  }

  private static ExecutorService others() {
    try { // since Java 21
      return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (ReflectiveOperationException e) {
      return Executors.newCachedThreadPool();
    }
  }

  private static void answer(HttpExchange x) throws IOException {
    handle();
    x.sendResponseHeaders(200, -1);
    x.close();
  }

  static void handle() {
    boolean slow = REQUESTS.getAndIncrement() % 4 == 0;
    reserve(slow ? 1 : 2);
    if (slow) {
      reserve("text");
      try {
        OTHERS.submit(Stacks::ship).get();
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
  }

  static void reserve(int n) {
    pause(n);
  }

  static void reserve(String text) {
    pause(60 + text.length() - 4);
  }

  static void ship() {
    pause(30);
  }

  private static void pause(int ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
