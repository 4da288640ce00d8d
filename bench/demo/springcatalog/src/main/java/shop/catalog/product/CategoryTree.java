package shop.catalog.product;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.stereotype.Component;

/** The names of a category and of those above it. */
@Component
public class CategoryTree {
  private final CategoryRepository categories;

  CategoryTree(CategoryRepository categories) {
    this.categories = categories;
  }

  public List<String> path(int category) {
    Map<Integer, Category> all = new HashMap<>();
    categories.findAll().forEach(c -> all.put(c.id(), c));
    Deque<String> names = new ArrayDeque<>();
    for (Category c = all.get(category); c != null; c = c.parent() == null ? null : all.get(c.parent())) {
      names.addFirst(c.name());
      if (c.id() == 0) {
        break;
      }
    }
    return List.copyOf(names);
  }
}
