package io.github.sibyltrace.agent.trace;

import io.github.sibyltrace.agent.Log;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** Asks people about packages of which the classifier is not sure: once, with the names at the level info. */
final class Unsure {
  private final Log log;
  private final Set<String> told = new HashSet<>();

  Unsure(Log log) {
    this.log = log;
  }

  void tell(Map<String, Boolean> packages) {
    if (told.isEmpty() && !packages.isEmpty()) {
      log.warn("not sure about " + packages.size() + " packages or more, such as " + packages.keySet().iterator().next() + ": d:info lists them; decide with own:REGEXP or exclude:REGEXP");
    }
    packages.forEach(
        (name, own) -> {
          if (told.add(name)) {
            log.info("not sure about the package " + name + ": taken as " + (own ? "the application's" : "a library's"));
          }
        });
  }
}
