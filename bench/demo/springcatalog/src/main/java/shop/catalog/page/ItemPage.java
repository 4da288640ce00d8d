package shop.catalog.page;

import java.util.List;
import org.springframework.stereotype.Service;
import shop.catalog.CustomerRequest;
import shop.catalog.offer.OfferService;
import shop.catalog.product.AttributeRepository;
import shop.catalog.product.PriceHistoryRepository;
import shop.catalog.product.Product;
import shop.catalog.product.ProductService;
import shop.catalog.product.VariantRepository;
import shop.catalog.related.RelatedProducts;
import shop.catalog.text.AttributeFormatter;
import shop.catalog.text.DescriptionRenderer;
import shop.catalog.views.Popularity;
import shop.catalog.views.RecentlyViewed;

@Service
public class ItemPage {
  private final ProductService products;
  private final OfferService offers;
  private final AttributeRepository attributes;
  private final AttributeFormatter formatter;
  private final VariantRepository variants;
  private final PriceHistoryRepository history;
  private final DescriptionRenderer renderer;
  private final RelatedProducts related;
  private final Popularity popularity;
  private final RecentlyViewed recent;
  private final Cards cards;

  ItemPage(
      ProductService products,
      OfferService offers,
      AttributeRepository attributes,
      AttributeFormatter formatter,
      VariantRepository variants,
      PriceHistoryRepository history,
      DescriptionRenderer renderer,
      RelatedProducts related,
      Popularity popularity,
      RecentlyViewed recent,
      Cards cards) {
    this.products = products;
    this.offers = offers;
    this.attributes = attributes;
    this.formatter = formatter;
    this.variants = variants;
    this.history = history;
    this.renderer = renderer;
    this.related = related;
    this.popularity = popularity;
    this.recent = recent;
    this.cards = cards;
  }

  public ProductDetails show(CustomerRequest r) {
    Product p = products.find(r.items().get(0));
    ProductCard card = cards.card(p, offers.offersOf(List.of(p)).getOrDefault(p.id(), List.of()), r);
    return new ProductDetails(
        card,
        renderer.render(p.description(), r.language()),
        formatter.format(attributes.findByProduct(p.id()), r.language()),
        variants.findByProduct(p.id()).stream().map(v -> v.size() + ", " + v.colour()).toList(),
        history.range(p.id()).isCheap(),
        popularity.view(p.name()),
        related.of(p, r),
        recent.add(p.id()));
  }
}
