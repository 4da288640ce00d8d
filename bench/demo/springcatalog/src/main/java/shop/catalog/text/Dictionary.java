package shop.catalog.text;

import java.util.Map;
import org.springframework.stereotype.Component;

@Component
public class Dictionary {
  private static final Map<String, Map<String, String>> WORDS =
      Map.of(
          "de", Map.of("attribute", "Merkmal", "value", "Wert", "size", "Größe", "colour", "Farbe", "garden", "Garten"),
          "fr", Map.of("attribute", "attribut", "value", "valeur", "size", "taille", "colour", "couleur", "garden", "jardin"));

  public String translate(String word, String language) {
    return WORDS.getOrDefault(language, Map.of()).getOrDefault(word, word);
  }
}
