package shop.catalog.product;

import java.util.List;
import java.util.Optional;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Repository;

@Repository
public class ProductRepository {
  private final JdbcClient db;

  ProductRepository(JdbcClient db) {
    this.db = db;
  }

  public Optional<Product> findById(int id) {
    return db.sql("SELECT id, category, name, description, price FROM products WHERE id = ?").param(id).query(ProductRepository::product).optional();
  }

  public List<Product> findAll(List<Integer> ids) {
    return db.sql("SELECT id, category, name, description, price FROM products WHERE id IN (:ids)").param("ids", ids).query(ProductRepository::product).list();
  }

  public List<Product> findByCategory(int category) {
    return db.sql("SELECT id, category, name, description, price FROM products WHERE category = ?").param(category).query(ProductRepository::product).list();
  }

  private static Product product(java.sql.ResultSet r, int row) throws java.sql.SQLException {
    return new Product(r.getInt(1), r.getInt(2), r.getString(3), r.getString(4), r.getInt(5));
  }
}
