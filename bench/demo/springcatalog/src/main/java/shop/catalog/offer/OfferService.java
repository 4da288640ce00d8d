package shop.catalog.offer;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.springframework.stereotype.Service;
import shop.catalog.faults.Faults;
import shop.catalog.product.Product;

/** Finds offers for products. With the fault java-n+1, it queries the database for each product and each seller. */
@Service
public class OfferService {
  private final OfferRepository offers;
  private final SellerRepository sellers;
  private final Faults faults;

  OfferService(OfferRepository offers, SellerRepository sellers, Faults faults) {
    this.offers = offers;
    this.sellers = sellers;
    this.faults = faults;
  }

  public Map<Integer, List<Offer>> offersOf(List<Product> products) {
    List<Offer> found = new ArrayList<>();
    if (faults.has("java-n+1", "OfferService.offersOf")) {
      for (Product p : products) {
        for (OfferRow row : offers.findByProduct(p.id())) {
          found.add(row.by(sellers.findById(row.seller())));
        }
      }
    } else {
      found.addAll(offers.findByProducts(products.stream().map(Product::id).toList()));
    }
    return found.stream().collect(Collectors.groupingBy(Offer::product));
  }

  public List<Offer> offersBy(Seller seller) {
    return offers.findBySeller(seller.id());
  }
}
