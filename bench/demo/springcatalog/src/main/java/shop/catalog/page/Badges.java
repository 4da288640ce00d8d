package shop.catalog.page;

import java.util.ArrayList;
import java.util.List;
import org.springframework.stereotype.Component;
import shop.catalog.offer.Offer;
import shop.catalog.product.Product;

@Component
public class Badges {
  public List<String> of(Product p, List<Offer> offers) {
    List<String> badges = new ArrayList<>();
    if (p.price() < 2_000) {
      badges.add("cheap");
    }
    if (offers.stream().noneMatch(Offer::isAvailable)) {
      badges.add("sold out");
    }
    if (offers.stream().anyMatch(o -> o.seller().rating() == 5)) {
      badges.add("top seller");
    }
    return badges;
  }
}
