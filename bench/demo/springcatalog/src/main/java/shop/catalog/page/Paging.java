package shop.catalog.page;

import java.util.List;
import org.springframework.stereotype.Component;

@Component
public class Paging {
  private static final int SIZE = 48;

  public <T> List<T> first(List<T> all) {
    return all.subList(0, Math.min(SIZE, all.size()));
  }
}
