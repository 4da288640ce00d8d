package shop.catalog.page;

import java.util.List;

public record SellerPage(String name, String stars, List<String> offers, String delivery) {}
