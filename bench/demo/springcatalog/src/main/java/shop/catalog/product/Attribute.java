package shop.catalog.product;

public record Attribute(String name, String content) {}
