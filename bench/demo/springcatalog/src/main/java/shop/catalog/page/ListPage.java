package shop.catalog.page;

import java.util.List;
import java.util.Map;
import org.springframework.stereotype.Service;
import shop.catalog.CustomerRequest;
import shop.catalog.offer.Offer;
import shop.catalog.offer.OfferService;
import shop.catalog.product.CategoryFilter;
import shop.catalog.product.CategoryTree;
import shop.catalog.product.Facets;
import shop.catalog.product.Product;
import shop.catalog.product.ProductService;
import shop.catalog.product.ProductSorter;
import shop.catalog.views.Popularity;

@Service
public class ListPage {
  private final ProductService products;
  private final CategoryFilter filter;
  private final CategoryTree tree;
  private final ProductSorter sorter;
  private final OfferService offers;
  private final Facets facets;
  private final Popularity popularity;
  private final Paging paging;
  private final Cards cards;

  ListPage(
      ProductService products, CategoryFilter filter, CategoryTree tree, ProductSorter sorter, OfferService offers, Facets facets, Popularity popularity, Paging paging, Cards cards) {
    this.products = products;
    this.filter = filter;
    this.tree = tree;
    this.sorter = sorter;
    this.offers = offers;
    this.facets = facets;
    this.popularity = popularity;
    this.paging = paging;
    this.cards = cards;
  }

  public ProductList show(CustomerRequest r) {
    List<Product> all = filter.allowed(products.favourites(r.items()), r.tier());
    List<Product> shown = paging.first(sorter.sort(all, r.tier()));
    Map<Integer, List<Offer>> offered = offers.offersOf(shown);
    int category = shown.isEmpty() ? 0 : shown.get(0).category();
    List<ProductCard> list = shown.stream().map(p -> cards.card(p, offered.getOrDefault(p.id(), List.of()), r)).toList();
    return new ProductList(tree.path(category), popularity.view("category " + category), list, facets.count(all));
  }
}
