package cost;

import com.sun.net.httpserver.HttpServer;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.function.LongBinaryOperator;

/**
 * Measures the CPU time of calls of three methods that do the same: one that nobody instruments, one that Sibyl may
 * enable, and one with a span of OpenTelemetry's own method instrumentation. It measures in turns, in requests over HTTP
 * on loopback, and answers with the median ns of a call of each. It prints its port.
 */
public final class Cost {
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
  private static final int ROUNDS = 21;
  private static final int CALLS = 50_000;

  public static void main(String[] args) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 4);
    server.createContext(
        "/",
        x -> {
          byte[] body = measure().getBytes();
          x.sendResponseHeaders(200, body.length);
          x.getResponseBody().write(body);
          x.close();
        });
    server.start();
    System.out.println("port " + server.getAddress().getPort());
    System.out.flush();
  }

  private static String measure() {
    LongBinaryOperator[] arms = {Cost::plain, Cost::sibyl, Cost::otel};
    double[][] nanos = new double[arms.length][ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
      for (int i = 0; i < arms.length; i++) {
        nanos[i][r] = time(arms[i]);
      }
    }
    StringBuilder b = new StringBuilder();
    for (double[] of : nanos) {
      Arrays.sort(of);
      b.append(of[ROUNDS / 2]).append(' ');
    }
    return b.toString();
  }

  private static double time(LongBinaryOperator arm) {
    long sum = 0;
    long begin = THREADS.getCurrentThreadCpuTime();
    for (int i = 0; i < CALLS; i++) {
      sum = arm.applyAsLong(sum, i);
    }
    return (double) (THREADS.getCurrentThreadCpuTime() - begin + (sum & 0)) / CALLS;
  }

  static long plain(long a, long b) {
    return a + b;
  }

  static long sibyl(long a, long b) {
    return a + b;
  }

  static long otel(long a, long b) {
    return a + b;
  }
}
