package shop.catalog.product;

import java.util.List;
import org.springframework.stereotype.Component;

/** Leaves out products that a customer may not buy. */
@Component
public class CategoryFilter {
  public List<Product> allowed(List<Product> products, String tier) {
    return products.stream().filter(p -> isAllowed(p, tier)).toList();
  }

  private boolean isAllowed(Product p, String tier) {
    return !"guest".equals(tier) || p.price() < 20_000;
  }
}
