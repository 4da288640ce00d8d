package shop.catalog.text;

import java.util.Locale;
import org.springframework.stereotype.Component;

/** Makes names fit for addresses. */
@Component
public class Slugs {
  public String of(String name) {
    return name.toLowerCase(Locale.ROOT).replaceAll("[^a-z0-9]+", "-");
  }
}
