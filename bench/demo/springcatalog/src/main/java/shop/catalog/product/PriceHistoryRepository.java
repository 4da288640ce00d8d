package shop.catalog.product;

import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Repository;
import shop.catalog.faults.Fault;
import shop.catalog.faults.Faults;

/** The prices of past days. With the fault java-query, its table has no index. */
@Repository
public class PriceHistoryRepository {
  private final JdbcClient db;

  PriceHistoryRepository(JdbcClient db, Faults faults) {
    this.db = db;
    faults.listen(this::index);
  }

  private void index(Fault fault) {
    boolean slow = fault.equals(new Fault("java-query", "PriceHistoryRepository.range"));
    db.sql(slow ? "DROP INDEX IF EXISTS price_history_product" : "CREATE INDEX IF NOT EXISTS price_history_product ON price_history (product)").update();
  }

  public PriceRange range(int product) {
    return db.sql(
            """
            SELECT (SELECT MIN(price) FROM price_history WHERE product = :product), (SELECT MAX(price) FROM price_history WHERE product = :product),
              (SELECT AVG(price) FROM price_history WHERE product = :product), (SELECT price FROM price_history WHERE product = :product AND age = 0)
            """)
        .param("product", product)
        .query((r, row) -> new PriceRange(r.getInt(1), r.getInt(2), r.getInt(3), r.getInt(4)))
        .single();
  }
}
