package shop;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/** A shop for tests of the agent, over HTTP on loopback. It prints its port. PUT /slow makes it reserve slowly. */
public final class Shop {
  static volatile boolean slow;

  public static void main(String[] args) throws IOException {
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
    Orders orders = new Orders();
    Carts carts = new Carts();
    server.createContext("/order", x -> answer(x, orders.place(3)));
    server.createContext("/cart", x -> answer(x, carts.show()));
    server.createContext(
        "/slow",
        x -> {
          slow = true;
          answer(x, 0);
        });
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.start();
    System.out.println("port " + server.getAddress().getPort());
    System.out.flush();
  }

  private static void answer(HttpExchange x, long value) throws IOException {
    byte[] body = Long.toString(value).getBytes();
    x.sendResponseHeaders(200, body.length);
    x.getResponseBody().write(body);
    x.close();
  }

  /** Takes about the given time. */
  static void pause(int micros) {
    LockSupport.parkNanos(micros * (900L + ThreadLocalRandom.current().nextInt(200)));
  }
}

final class Orders {
  private final Prices prices = new Prices();
  private final Stock stock = new Stock();
  private final Payment payment = new Payment();
  private final ExecutorService mails = Executors.newFixedThreadPool(2);

  long place(int items) {
    validate(items);
    long total = 0;
    for (int i = 0; i < items; i++) {
      total += prices.price(i);
    }
    stock.reserve(items);
    payment.charge(total);
    Future<?> mail = mails.submit(this::confirm);
    try {
      mail.get();
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
    return total;
  }

  private void validate(int items) {
    if (items < 1) {
      throw new IllegalArgumentException("no items");
    }
    Shop.pause(200);
  }

  private void confirm() {
    Shop.pause(300);
  }
}

final class Prices {
  long price(int item) {
    Shop.pause(400);
    return 100 + item - discount(item);
  }

  private long discount(int item) {
    Shop.pause(100);
    return item;
  }
}

final class Stock {
  void reserve(int items) {
    lock();
    for (int i = 0; i < items; i++) {
      take(i);
    }
  }

  private void lock() {
    Shop.pause(Shop.slow && ThreadLocalRandom.current().nextInt(4) > 0 ? 40_000 : 300);
  }

  private void take(int item) {
    Shop.pause(100);
  }
}

final class Payment {
  void charge(long total) {
    Shop.pause(1500);
  }
}

final class Carts {
  long show() {
    load();
    return 1;
  }

  private void load() {
    Shop.pause(800);
  }
}
