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
    int latest = figure("MIN(CASE WHEN age = 0 THEN price END)", product);
    return new PriceRange(figure("MIN(price)", product), figure("MAX(price)", product), figure("AVG(price)", product), latest);
  }

  private int figure(String expression, int product) {
    return db.sql("SELECT " + expression + " FROM price_history WHERE product = ?").param(product).query((r, row) -> r.getInt(1)).single();
  }
}
