package shop.catalog.page;

import java.util.List;
import java.util.Map;

/** The page of a product. */
public record ProductDetails(
    ProductCard card, String description, Map<String, String> attributes, List<String> variants, boolean cheap, String popularity, List<Integer> related, List<Integer> recent) {}
