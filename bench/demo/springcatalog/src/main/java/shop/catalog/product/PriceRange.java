package shop.catalog.product;

/** Lowest, highest, average and latest price of a product, in cents. */
public record PriceRange(int lowest, int highest, int average, int latest) {
  public boolean isCheap() {
    return latest <= average - (highest - lowest) / 4;
  }
}
