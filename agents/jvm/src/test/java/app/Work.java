package app;

import java.util.ArrayList;
import java.util.List;
import java.util.function.LongUnaryOperator;

/** Work of an application, with all that makes instrumenting difficult: exceptions, loops, locks, recursion and lambdas. */
public class Work implements LongUnaryOperator {
  private final Object lock = new Object();
  private long sum;

  @Override
  public long applyAsLong(long n) {
    return handle((int) n);
  }

  /** Returns the same for the same n. */
  public long handle(int n) {
    long result = loop(n % 7) + (long) recursive(n % 5, 1.5, (byte) 2);
    try {
      fail(n);
    } catch (IllegalStateException e) {
      result += e.getMessage().length();
    } finally {
      result++;
    }
    LongUnaryOperator twice = x -> 2 * x;
    return twice.applyAsLong(result) + locked(n) + list(n, "a", "b").size();
  }

  private long loop(int n) {
    long total = 0;
    for (int i = 0; i < n; i++) {
      if (i == 5) {
        return total;
      }
      total += i % 2 == 0 ? i : -i;
    }
    return total;
  }

  private double recursive(long depth, double factor, byte b) {
    return depth == 0 ? b : factor * recursive(depth - 1, factor, b);
  }

  private static void fail(int n) {
    if (n % 3 == 0) {
      throw new IllegalStateException("n" + n % 10);
    }
  }

  private long locked(int n) {
    synchronized (lock) {
      sum += n;
      sum -= n;
      return sum;
    }
  }

  private <T> List<T> list(int n, T first, T second) {
    List<T> all = new ArrayList<>();
    do {
      all.add(n % 2 == 0 ? first : second);
    } while (all.size() < n % 4);
    return all;
  }
}
