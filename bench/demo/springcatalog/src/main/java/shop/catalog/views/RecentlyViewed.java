package shop.catalog.views;

import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.stereotype.Component;

/** The products that were viewed last. */
@Component
public class RecentlyViewed {
  private static final int MOST = 20;

  private final ConcurrentLinkedDeque<Integer> products = new ConcurrentLinkedDeque<>();
  private final AtomicInteger size = new AtomicInteger();

  public List<Integer> add(int product) {
    products.addFirst(product);
    if (size.incrementAndGet() > MOST) {
      products.pollLast();
      size.decrementAndGet();
    }
    return products.stream().limit(5).toList();
  }
}
