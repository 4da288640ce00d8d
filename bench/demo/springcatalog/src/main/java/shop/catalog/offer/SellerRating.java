package shop.catalog.offer;

import java.util.List;
import org.springframework.stereotype.Component;

@Component
public class SellerRating {
  public String stars(Seller seller, List<Offer> offers) {
    long available = offers.stream().filter(Offer::isAvailable).count();
    int stars = Math.min(5, seller.rating() + (available > offers.size() / 2 ? 1 : 0));
    return "★".repeat(stars);
  }
}
