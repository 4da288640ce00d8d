package shop.catalog.text;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.springframework.stereotype.Component;
import shop.catalog.faults.Faults;
import shop.catalog.product.Attribute;

/** Formats the attributes of a product. With the fault java-method, it computes far longer. */
@Component
public class AttributeFormatter {
  private final Translator translator;
  private final Faults faults;

  AttributeFormatter(Translator translator, Faults faults) {
    this.translator = translator;
    this.faults = faults;
  }

  public Map<String, String> format(List<Attribute> attributes, String language) {
    if (faults.has("java-method", "AttributeFormatter.format")) {
      Faults.burn(60_000);
    }
    Map<String, String> formatted = new LinkedHashMap<>();
    for (Attribute a : attributes) {
      formatted.put(translator.translate(a.name(), language), translator.translate(a.content(), language));
    }
    return formatted;
  }
}
