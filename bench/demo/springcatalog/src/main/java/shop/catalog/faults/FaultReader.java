package shop.catalog.faults;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.springframework.boot.context.event.ApplicationReadyEvent;
import org.springframework.context.event.EventListener;
import org.springframework.stereotype.Component;

/** Reads faults from standard input, one a line, and ends the process at its end: the demo that started it is gone. */
@Component
class FaultReader {
  private final Faults faults;

  FaultReader(Faults faults) {
    this.faults = faults;
  }

  @EventListener(ApplicationReadyEvent.class)
  void start() {
    Thread t = new Thread(this::read, "faults");
    t.setDaemon(true);
    t.start();
  }

  private void read() {
    try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        faults.set(Fault.parse(line));
      }
    } catch (IOException e) {
      System.err.println("cannot read faults: " + e);
    }
    System.exit(0);
  }
}
