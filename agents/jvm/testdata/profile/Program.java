package profile;

import java.util.ArrayList;
import java.util.List;

/** A program whose calls and objects a test knows. */
public final class Program {
  static class Base {}

  static final class Item extends Base {
    final int x;

    Item(int x) {
      this.x = x;
    }

    Item() {
      this(new StringBuilder("abc").length());
    }
  }

  static final class Point {}

  static int fib(int n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
  }

  static void work() {
    new Item(1);
    new Item();
    new Point();
  }

  static void fail(int i) {
    if (i % 2 == 0) {
      throw new IllegalStateException();
    }
  }

  public static void main(String[] args) throws InterruptedException {
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 600; i++) { // more than the profile keeps apart
      Thread t = new Thread(Program::work);
      t.start();
      threads.add(t);
    }
    for (Thread t : threads) {
      t.join();
    }
    fib(20);
    for (int i = 0; i < 10; i++) {
      try {
        fail(i);
      } catch (IllegalStateException e) {
        // expected
      }
    }
    System.out.println("done");
  }
}
