package shop.catalog.product;

import java.util.Comparator;
import java.util.List;
import org.springframework.stereotype.Component;

@Component
public class ProductSorter {
  public List<Product> sort(List<Product> products, String tier) {
    Comparator<Product> byPrice = Comparator.comparingInt(Product::price);
    return products.stream().sorted("gold".equals(tier) ? byPrice.reversed() : byPrice).toList();
  }
}
