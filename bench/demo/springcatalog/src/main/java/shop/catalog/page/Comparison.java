package shop.catalog.page;

import java.util.List;
import java.util.Map;

/** Products beside each other: their attributes, and those in which they differ. */
public record Comparison(List<ProductCard> products, Map<String, List<String>> attributes, List<String> differences, String bundlePrice) {}
