package shop.catalog.product;

/** Lowest and highest price of a product, in cents. */
public record PriceRange(int lowest, int highest) {
  public boolean isCheap(int price) {
    return price <= lowest + (highest - lowest) / 4;
  }
}
