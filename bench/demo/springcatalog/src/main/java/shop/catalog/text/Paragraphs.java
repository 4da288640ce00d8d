package shop.catalog.text;

import java.util.Arrays;
import java.util.stream.Collectors;
import org.springframework.stereotype.Component;

@Component
public class Paragraphs {
  public String render(String text) {
    return Arrays.stream(text.split("\\. ")).map(s -> "<p>" + s + "</p>").collect(Collectors.joining());
  }
}
