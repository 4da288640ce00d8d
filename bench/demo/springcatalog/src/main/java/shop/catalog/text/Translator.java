package shop.catalog.text;

import java.util.Arrays;
import java.util.stream.Collectors;
import org.springframework.stereotype.Component;

/** Translates texts word by word. */
@Component
public class Translator {
  private final Dictionary dictionary;

  Translator(Dictionary dictionary) {
    this.dictionary = dictionary;
  }

  public String translate(String text, String language) {
    if ("en".equals(language)) {
      return text;
    }
    return Arrays.stream(text.split(" ")).map(w -> dictionary.translate(w, language)).collect(Collectors.joining(" "));
  }
}
