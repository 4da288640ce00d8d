package shop.catalog.faults;

import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.springframework.stereotype.Component;

/** The fault of this process: its kind, and the method that has it. */
@Component
public class Faults {
  private final List<Consumer<Fault>> listeners = new CopyOnWriteArrayList<>();
  private volatile Fault current = Fault.NONE;

  public boolean has(String kind, String method) {
    Fault f = current;
    return f.kind().equals(kind) && f.method().equals(method);
  }

  public void set(Fault fault) {
    current = fault;
    listeners.forEach(l -> l.accept(fault));
  }

  /** Calls a listener at each change. */
  public void listen(Consumer<Fault> listener) {
    listeners.add(listener);
  }

  /** Computes in an inefficient way: a round takes about a microsecond. */
  public static void burn(int rounds) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      byte[] block = new byte[1024];
      for (int i = 0; i < rounds; i++) {
        digest.update(block);
        digest.digest(block, 0, 32);
      }
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e); // every JDK has SHA-256
    }
  }
}
