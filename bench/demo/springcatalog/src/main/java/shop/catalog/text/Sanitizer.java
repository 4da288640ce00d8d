package shop.catalog.text;

import org.springframework.stereotype.Component;

@Component
public class Sanitizer {
  public String escape(String text) {
    StringBuilder b = new StringBuilder(text.length() + 16);
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      switch (c) {
        case '<' -> b.append("&lt;");
        case '>' -> b.append("&gt;");
        case '&' -> b.append("&amp;");
        default -> b.append(c);
      }
    }
    return b.toString();
  }
}
