package shop.catalog.product;

public class UnknownProductException extends RuntimeException {
  private static final long serialVersionUID = 1;

  public UnknownProductException(int id) {
    super("there is no product " + id);
  }
}
