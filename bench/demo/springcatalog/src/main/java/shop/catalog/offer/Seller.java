package shop.catalog.offer;

public record Seller(int id, String name, String country, int rating) {}
