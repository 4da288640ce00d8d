package shop.catalog.views;

import org.springframework.stereotype.Component;

@Component
public class Popularity {
  private final ViewCounter counter;

  Popularity(ViewCounter counter) {
    this.counter = counter;
  }

  /** Counts a view and returns how popular the page is. */
  public String view(String page) {
    long views = counter.count(page);
    return views > 1000 ? "popular" : views > 100 ? "known" : "new";
  }
}
