package shop.catalog.product;

public record Variant(String size, String colour, int stock) {}
