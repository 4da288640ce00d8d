package shop.catalog.page;

import java.util.List;
import org.springframework.stereotype.Service;
import shop.catalog.CustomerRequest;
import shop.catalog.offer.DeliveryEstimate;
import shop.catalog.offer.Offer;
import shop.catalog.offer.OfferService;
import shop.catalog.offer.PriceFormatter;
import shop.catalog.offer.Seller;
import shop.catalog.offer.SellerRating;
import shop.catalog.offer.SellerRepository;

@Service
public class SellerService {
  private static final int SELLERS = 100;

  private final SellerRepository sellers;
  private final OfferService offers;
  private final SellerRating rating;
  private final PriceFormatter prices;
  private final DeliveryEstimate delivery;

  SellerService(SellerRepository sellers, OfferService offers, SellerRating rating, PriceFormatter prices, DeliveryEstimate delivery) {
    this.sellers = sellers;
    this.offers = offers;
    this.rating = rating;
    this.prices = prices;
    this.delivery = delivery;
  }

  public SellerPage show(CustomerRequest r) {
    Seller s = sellers.findById(r.items().get(0) % SELLERS);
    List<Offer> all = offers.offersBy(s);
    return new SellerPage(
        s.name(), rating.stars(s, all), all.stream().map(o -> prices.format(o.price(), r.currency())).toList(), delivery.days(s, r.language()) + " days");
  }
}
