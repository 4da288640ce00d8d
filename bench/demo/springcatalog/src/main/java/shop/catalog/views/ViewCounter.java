package shop.catalog.views;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import org.springframework.stereotype.Component;
import shop.catalog.faults.Faults;

/** Counts views, for requests of all kinds. With the fault java-lock, it computes while it holds the lock. */
@Component
public class ViewCounter {
  private final Lock lock = new ReentrantLock(); // guards views
  private final Map<String, Long> views = new HashMap<>();
  private final Faults faults;

  ViewCounter(Faults faults) {
    this.faults = faults;
  }

  public long count(String page) {
    lock.lock();
    try {
      if (faults.has("java-lock", "ViewCounter.count")) {
        Faults.burn(20_000);
      }
      return views.merge(page, 1L, Long::sum);
    } finally {
      lock.unlock();
    }
  }
}
