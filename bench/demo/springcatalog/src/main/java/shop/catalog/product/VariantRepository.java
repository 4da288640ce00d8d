package shop.catalog.product;

import java.util.List;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Repository;

@Repository
public class VariantRepository {
  private final JdbcClient db;

  VariantRepository(JdbcClient db) {
    this.db = db;
  }

  public List<Variant> findByProduct(int product) {
    return db.sql("SELECT size, colour, stock FROM variants WHERE product = ?")
        .param(product)
        .query((r, row) -> new Variant(r.getString(1), r.getString(2), r.getInt(3)))
        .list();
  }
}
