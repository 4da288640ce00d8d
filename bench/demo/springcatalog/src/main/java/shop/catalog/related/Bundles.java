package shop.catalog.related;

import java.util.List;
import org.springframework.stereotype.Component;
import shop.catalog.offer.Discounts;
import shop.catalog.product.Product;

/** Prices of products that are bought together. */
@Component
public class Bundles {
  private final Discounts discounts;

  Bundles(Discounts discounts) {
    this.discounts = discounts;
  }

  public int price(List<Product> products, String tier) {
    int sum = products.stream().mapToInt(Product::price).sum();
    return discounts.apply(products.size() > 2 ? sum - sum / 20 : sum, tier);
  }
}
