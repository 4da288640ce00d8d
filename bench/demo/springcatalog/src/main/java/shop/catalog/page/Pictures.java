package shop.catalog.page;

import org.springframework.stereotype.Component;
import shop.catalog.product.Product;
import shop.catalog.text.Slugs;

@Component
public class Pictures {
  private final Slugs slugs;

  Pictures(Slugs slugs) {
    this.slugs = slugs;
  }

  public String of(Product p) {
    return "/pictures/" + p.category() + "/" + slugs.of(p.name()) + ".webp";
  }
}
