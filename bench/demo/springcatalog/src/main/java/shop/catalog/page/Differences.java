package shop.catalog.page;

import java.util.List;
import java.util.Map;
import org.springframework.stereotype.Component;

@Component
public class Differences {
  /** Returns the names of the attributes that do not have the same content everywhere. */
  public List<String> of(Map<String, List<String>> attributes) {
    return attributes.entrySet().stream().filter(e -> e.getValue().stream().distinct().count() > 1).map(Map.Entry::getKey).toList();
  }
}
