package shop.catalog.product;

import java.util.List;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Repository;

@Repository
public class CategoryRepository {
  private final JdbcClient db;

  CategoryRepository(JdbcClient db) {
    this.db = db;
  }

  public List<Category> findAll() {
    return db.sql("SELECT id, name, parent FROM categories").query((r, row) -> new Category(r.getInt(1), r.getString(2), r.getObject(3, Integer.class))).list();
  }
}
