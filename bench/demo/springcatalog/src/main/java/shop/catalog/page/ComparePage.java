package shop.catalog.page;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.springframework.stereotype.Service;
import shop.catalog.CustomerRequest;
import shop.catalog.offer.Offer;
import shop.catalog.offer.OfferService;
import shop.catalog.offer.PriceFormatter;
import shop.catalog.product.AttributeRepository;
import shop.catalog.product.Product;
import shop.catalog.product.ProductService;
import shop.catalog.related.Bundles;
import shop.catalog.text.AttributeFormatter;
import shop.catalog.views.Popularity;

@Service
public class ComparePage {
  private final ProductService products;
  private final OfferService offers;
  private final AttributeRepository attributes;
  private final AttributeFormatter formatter;
  private final Differences differences;
  private final Bundles bundles;
  private final PriceFormatter prices;
  private final Popularity popularity;
  private final Cards cards;

  ComparePage(
      ProductService products,
      OfferService offers,
      AttributeRepository attributes,
      AttributeFormatter formatter,
      Differences differences,
      Bundles bundles,
      PriceFormatter prices,
      Popularity popularity,
      Cards cards) {
    this.products = products;
    this.offers = offers;
    this.attributes = attributes;
    this.formatter = formatter;
    this.differences = differences;
    this.bundles = bundles;
    this.prices = prices;
    this.popularity = popularity;
    this.cards = cards;
  }

  public Comparison show(CustomerRequest r) {
    List<Product> compared = products.findAll(r.items());
    Map<Integer, List<Offer>> offered = offers.offersOf(compared);
    popularity.view("compare");
    Map<String, List<String>> table = table(compared, r.language());
    List<ProductCard> list = compared.stream().map(p -> cards.card(p, offered.getOrDefault(p.id(), List.of()), r)).toList();
    return new Comparison(list, table, differences.of(table), prices.format(bundles.price(compared, r.tier()), r.currency()));
  }

  private Map<String, List<String>> table(List<Product> compared, String language) {
    Map<String, List<String>> table = new LinkedHashMap<>();
    for (Product p : compared) {
      formatter.format(attributes.findByProduct(p.id()), language).forEach((name, content) -> table.computeIfAbsent(name, x -> new ArrayList<>()).add(content));
    }
    return table;
  }
}
