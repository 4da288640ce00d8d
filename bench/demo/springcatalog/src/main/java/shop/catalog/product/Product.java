package shop.catalog.product;

/** A product; its price is in cents. */
public record Product(int id, int category, String name, String description, int price) {}
