package shop.catalog.offer;

import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.List;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Repository;

@Repository
public class OfferRepository {
  private static final String JOINED = "SELECT o.id, o.product, o.price, o.stock, s.id, s.name, s.country, s.rating FROM offers o JOIN sellers s ON s.id = o.seller ";

  private final JdbcClient db;

  OfferRepository(JdbcClient db) {
    this.db = db;
  }

  public List<Offer> findByProducts(List<Integer> products) {
    return db.sql(JOINED + "WHERE o.product IN (:products)").param("products", products).query(OfferRepository::offer).list();
  }

  public List<Offer> findBySeller(int seller) {
    return db.sql(JOINED + "WHERE o.seller = ?").param(seller).query(OfferRepository::offer).list();
  }

  public List<OfferRow> findByProduct(int product) {
    return db.sql("SELECT id, product, seller, price, stock FROM offers WHERE product = ?")
        .param(product)
        .query((r, row) -> new OfferRow(r.getInt(1), r.getInt(2), r.getInt(3), r.getInt(4), r.getInt(5)))
        .list();
  }

  private static Offer offer(ResultSet r, int row) throws SQLException {
    return new Offer(r.getInt(1), r.getInt(2), r.getInt(3), r.getInt(4), new Seller(r.getInt(5), r.getString(6), r.getString(7), r.getInt(8)));
  }
}
