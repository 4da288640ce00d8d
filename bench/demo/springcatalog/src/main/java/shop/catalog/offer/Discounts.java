package shop.catalog.offer;

import org.springframework.stereotype.Component;

@Component
public class Discounts {
  public int apply(int cents, String tier) {
    return switch (tier) {
      case "gold" -> cents - cents / 10;
      case "member" -> cents - cents / 50;
      default -> cents;
    };
  }
}
