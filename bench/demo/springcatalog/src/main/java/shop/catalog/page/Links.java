package shop.catalog.page;

import org.springframework.stereotype.Component;
import shop.catalog.product.Product;
import shop.catalog.text.Slugs;

@Component
public class Links {
  private final Slugs slugs;

  Links(Slugs slugs) {
    this.slugs = slugs;
  }

  public String to(Product p) {
    return "/products/" + p.id() + "-" + slugs.of(p.name());
  }
}
