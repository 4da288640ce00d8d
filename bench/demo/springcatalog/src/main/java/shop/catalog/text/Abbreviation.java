package shop.catalog.text;

import org.springframework.stereotype.Component;

@Component
public class Abbreviation {
  private static final int LENGTH = 60;

  public String of(String text) {
    if (text.length() <= LENGTH) {
      return text;
    }
    int end = text.lastIndexOf(' ', LENGTH);
    return text.substring(0, end < 0 ? LENGTH : end) + "…";
  }
}
