package shop.catalog.page;

import java.util.List;
import org.springframework.stereotype.Component;
import shop.catalog.CustomerRequest;
import shop.catalog.offer.Discounts;
import shop.catalog.offer.Offer;
import shop.catalog.offer.OfferRanking;
import shop.catalog.offer.PriceFormatter;
import shop.catalog.product.Product;
import shop.catalog.text.Abbreviation;

/** Makes the cards of products. */
@Component
public class Cards {
  private final OfferRanking ranking;
  private final Discounts discounts;
  private final PriceFormatter prices;
  private final Abbreviation abbreviation;
  private final Links links;
  private final Pictures pictures;
  private final Badges badges;

  Cards(OfferRanking ranking, Discounts discounts, PriceFormatter prices, Abbreviation abbreviation, Links links, Pictures pictures, Badges badges) {
    this.ranking = ranking;
    this.discounts = discounts;
    this.prices = prices;
    this.abbreviation = abbreviation;
    this.links = links;
    this.pictures = pictures;
    this.badges = badges;
  }

  public ProductCard card(Product p, List<Offer> offers, CustomerRequest r) {
    int price = ranking.best(offers, r.language()).map(Offer::price).orElse(p.price());
    String text = prices.format(discounts.apply(price, r.tier()), r.currency());
    return new ProductCard(p.id(), p.name(), abbreviation.of(p.description()), text, links.to(p), pictures.of(p), badges.of(p, offers));
  }
}
