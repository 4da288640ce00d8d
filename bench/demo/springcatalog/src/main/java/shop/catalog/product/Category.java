package shop.catalog.product;

/** A category; the parent of the root is null. */
public record Category(int id, String name, Integer parent) {}
