package shop.catalog.product;

import java.util.List;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Repository;

@Repository
public class AttributeRepository {
  private final JdbcClient db;

  AttributeRepository(JdbcClient db) {
    this.db = db;
  }

  public List<Attribute> findByProduct(int product) {
    return db.sql("SELECT name, content FROM attributes WHERE product = ?").param(product).query((r, row) -> new Attribute(r.getString(1), r.getString(2))).list();
  }
}
