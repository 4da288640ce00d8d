package shop.catalog.offer;

/** An offer for a product; its price is in cents. */
public record Offer(int id, int product, int price, int stock, Seller seller) {
  public boolean isAvailable() {
    return stock > 0;
  }
}
