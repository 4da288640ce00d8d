package shop.catalog.offer;

import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Repository;

@Repository
public class SellerRepository {
  private final JdbcClient db;

  SellerRepository(JdbcClient db) {
    this.db = db;
  }

  public Seller findById(int id) {
    return db.sql("SELECT id, name, country, rating FROM sellers WHERE id = ?")
        .param(id)
        .query((r, row) -> new Seller(r.getInt(1), r.getString(2), r.getString(3), r.getInt(4)))
        .single();
  }
}
