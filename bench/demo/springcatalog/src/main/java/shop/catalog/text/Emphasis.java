package shop.catalog.text;

import java.util.regex.Pattern;
import org.springframework.stereotype.Component;

@Component
public class Emphasis {
  private static final Pattern STARS = Pattern.compile("\\*([^*]+)\\*");

  public String render(String text) {
    return STARS.matcher(text).replaceAll("<em>$1</em>");
  }
}
