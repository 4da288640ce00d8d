package shop.catalog.related;

import java.util.Comparator;
import java.util.List;
import org.springframework.stereotype.Component;
import shop.catalog.faults.Faults;
import shop.catalog.product.Product;

/** Orders products by similarity. With the fault java-gc, it fills the heap and makes much garbage. */
@Component
public class Similarity {
  private static final int KEPT = 3_000_000; // objects of the heap that the collector must mark
  private static final int GARBAGE = 6_000_000; // objects per request

  private final Faults faults;
  private volatile Link kept;

  Similarity(Faults faults) {
    this.faults = faults;
  }

  public List<Integer> nearest(Product p, List<Integer> candidates) {
    if (faults.has("java-gc", "Similarity.nearest")) {
      if (kept == null) {
        Link chain = null;
        for (int i = 0; i < KEPT; i++) {
          chain = new Link(chain, i);
        }
        kept = chain;
      }
      Link garbage = null;
      for (int i = 0; i < GARBAGE; i++) {
        garbage = new Link(i % 1000 == 0 ? null : garbage, i);
      }
    }
    return candidates.stream().sorted(Comparator.comparingInt(c -> Integer.bitCount(c ^ p.id()))).toList();
  }

  private record Link(Link next, long distance) {}
}
