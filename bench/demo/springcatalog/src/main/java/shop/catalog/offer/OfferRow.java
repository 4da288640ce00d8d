package shop.catalog.offer;

/** An offer as it is stored, with the number of its seller. */
public record OfferRow(int id, int product, int seller, int price, int stock) {
  Offer by(Seller s) {
    return new Offer(id, product, price, stock, s);
  }
}
