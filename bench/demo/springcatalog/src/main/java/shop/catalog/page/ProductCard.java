package shop.catalog.page;

import java.util.List;

/** A product in a list. */
public record ProductCard(int id, String name, String summary, String price, String link, String picture, List<String> badges) {}
