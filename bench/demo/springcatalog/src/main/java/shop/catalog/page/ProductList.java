package shop.catalog.page;

import java.util.List;
import java.util.Map;

/** The page of a category. */
public record ProductList(List<String> path, String popularity, List<ProductCard> products, Map<String, Integer> facets) {}
