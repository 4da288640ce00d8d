package shop.catalog.text;

import org.springframework.stereotype.Component;

/** Renders descriptions as HTML. */
@Component
public class DescriptionRenderer {
  private final Sanitizer sanitizer;
  private final Emphasis emphasis;
  private final Paragraphs paragraphs;
  private final Translator translator;

  DescriptionRenderer(Sanitizer sanitizer, Emphasis emphasis, Paragraphs paragraphs, Translator translator) {
    this.sanitizer = sanitizer;
    this.emphasis = emphasis;
    this.paragraphs = paragraphs;
    this.translator = translator;
  }

  public String render(String description, String language) {
    return paragraphs.render(emphasis.render(sanitizer.escape(translator.translate(description, language))));
  }
}
