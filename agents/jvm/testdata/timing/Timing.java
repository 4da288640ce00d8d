package timing;

/** Methods of some microseconds to some milliseconds, which call each other, in two threads. */
public final class Timing {
  public static void main(String[] args) throws InterruptedException {
    Thread other = new Thread(Timing::work);
    other.start();
    work();
    other.join();
    System.out.println("done");
  }

  private static void work() {
    for (int i = 0; i < 100; i++) {
      outer();
    }
  }

  private static void outer() {
    for (int i = 0; i < 5; i++) {
      middle();
    }
    spin(200);
  }

  private static void middle() {
    inner();
    spin(300);
  }

  private static void inner() {
    spin(100);
  }

  private static void spin(int micros) {
    long end = System.nanoTime() + micros * 1000L;
    while (System.nanoTime() < end) {
      Thread.onSpinWait();
    }
  }
}
