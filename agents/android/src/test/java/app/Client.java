package app;

import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.function.ToLongFunction;

/** Calls the library in all ways. */
public class Client implements Supplier<String> {
  @Override
  public String get() {
    Library l = new Library("text");
    l.trace("hidden");
    long n = Library.count("abc");
    return new Library.Below().load("x", (int) n);
  }

  public static String references() {
    Library l = new Library();
    BiFunction<String, Integer, String> bound = l::load;
    ToLongFunction<String> ofClass = Library::count;
    Function<String, Library> constructor = Library::new;
    return bound.apply("y", 1) + ofClass.applyAsLong("ab") + (constructor.apply("z") != null);
  }

  public static String other() {
    BiFunction<String, Integer, String> bound = new Library.Below()::load;
    return bound.apply("y", 1);
  }

  public int size() {
    return 3;
  }

  public long compute(int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) {
      sum += i;
    }
    return sum;
  }
}
