package chain;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * One of three services that call each other over HTTP on loopback. It prints its port. The first calls the second from
 * another thread; the second calls the third twice at once, from virtual threads where the JVM has them; the third
 * works in the thread of the request.
 */
public final class Service {
  public static void main(String[] args) throws Exception {
    Handler handler = handler(args[0], args.length > 1 ? args[1] : "");
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 256);
    server.createContext("/", x -> answer(x, handler));
    server.setExecutor(Executors.newFixedThreadPool(16));
    server.start();
    System.out.println("port " + server.getAddress().getPort());
    System.out.flush();
  }

  private static Handler handler(String name, String next) {
    switch (name) {
      case "front":
        return new Front(next);
      case "middle":
        return new Middle(next);
      default:
        return new Back();
    }
  }

  private static void answer(HttpExchange x, Handler handler) throws IOException {
    int code = 200;
    byte[] body;
    try {
      body = Integer.toString(handler.handle()).getBytes();
    } catch (Exception e) {
      code = 500;
      body = e.toString().getBytes();
    }
    x.sendResponseHeaders(code, body.length);
    x.getResponseBody().write(body);
    x.close();
  }
}

interface Handler {
  int handle() throws Exception;
}

final class Remote {
  private static final HttpClient CLIENT = HttpClient.newHttpClient();

  static int get(String url) throws Exception {
    HttpResponse<String> r = CLIENT.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
    if (r.statusCode() != 200) {
      throw new IOException(url + ": " + r.body());
    }
    return Integer.parseInt(r.body());
  }
}

final class Front implements Handler {
  private final String next;
  private final ExecutorService executor = Executors.newFixedThreadPool(16);

  Front(String next) {
    this.next = next;
  }

  @Override
  public int handle() throws Exception {
    return CompletableFuture.supplyAsync(this::ask, executor).get();
  }

  private int ask() {
    try {
      return Remote.get(next);
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }
}

final class Middle implements Handler {
  private final String next;
  private final ExecutorService executor = executor();

  Middle(String next) {
    this.next = next;
  }

  private static ExecutorService executor() {
    try { // since Java 21
      return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (ReflectiveOperationException e) {
      return Executors.newCachedThreadPool();
    }
  }

  @Override
  public int handle() throws Exception {
    CompletableFuture<Integer> left = CompletableFuture.supplyAsync(this::left, executor);
    CompletableFuture<Integer> right = CompletableFuture.supplyAsync(this::right, executor);
    return left.get() + right.get();
  }

  private int left() {
    return ask();
  }

  private int right() {
    return ask();
  }

  private int ask() {
    try {
      return Remote.get(next);
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }
}

final class Back implements Handler {
  @Override
  public int handle() {
    return read(3);
  }

  private int read(int n) {
    return n + row(n);
  }

  private int row(int n) {
    return 2 * n;
  }
}
