package shop.catalog.offer;

import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import org.springframework.stereotype.Component;

@Component
public class OfferRanking {
  private final DeliveryEstimate delivery;

  OfferRanking(DeliveryEstimate delivery) {
    this.delivery = delivery;
  }

  /** Returns the offer with the best balance of price and delivery. */
  public Optional<Offer> best(List<Offer> offers, String language) {
    return offers.stream().filter(Offer::isAvailable).min(Comparator.comparingInt(o -> score(o, language)));
  }

  private int score(Offer o, String language) {
    return o.price() + 100 * delivery.days(o.seller(), language) - 50 * o.seller().rating();
  }
}
