package shop.catalog.product;

import java.util.List;
import org.springframework.stereotype.Service;

@Service
public class ProductService {
  private static final int CATEGORIES = 32;

  private final ProductRepository products;

  ProductService(ProductRepository products) {
    this.products = products;
  }

  public Product find(int id) {
    return products.findById(id).orElseThrow(() -> new UnknownProductException(id));
  }

  public List<Product> findAll(List<Integer> ids) {
    return products.findAll(ids);
  }

  /** Returns the products of a customer's favourite category. */
  public List<Product> favourites(List<Integer> bought) {
    return products.findByCategory(bought.get(0) % CATEGORIES);
  }
}
