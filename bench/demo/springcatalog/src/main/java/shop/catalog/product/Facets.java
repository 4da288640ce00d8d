package shop.catalog.product;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.springframework.stereotype.Component;
import shop.catalog.faults.Faults;

/** Counts products by price. With the fault java-method, it computes much longer. */
@Component
public class Facets {
  private final Faults faults;

  Facets(Faults faults) {
    this.faults = faults;
  }

  public Map<String, Integer> count(List<Product> products) {
    Map<String, Integer> counts = new TreeMap<>();
    for (Product p : products) {
      counts.merge(label(p.price()), 1, Integer::sum);
    }
    if (faults.has("java-method", "Facets.count")) {
      Faults.burn(30_000);
    }
    return counts;
  }

  private static String label(int cents) {
    int hundreds = cents / 10_000;
    return hundreds * 100 + "–" + (hundreds + 1) * 100;
  }
}
