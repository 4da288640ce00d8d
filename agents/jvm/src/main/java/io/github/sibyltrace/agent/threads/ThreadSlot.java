package io.github.sibyltrace.agent.threads;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The record of a thread in a {@link ThreadTable}. Only this thread writes it. The kernel reads it while the thread is
 * not running, so that the order of stores in the code suffices.
 *
 * <p>It has the hexadecimal digits of trace and span, then the number of the thread, the state, and the start of the
 * thread, by which a record that a former thread left is told apart; as struct slot in agents/kernel/bpf/wait.bpf.c.
 */
public final class ThreadSlot {
  static final int SIZE = 64;
  static final ThreadSlot NONE = new ThreadSlot(ByteBuffer.allocate(SIZE), 0, 0, 0);

  private static final int TRACE_DIGITS = 32;
  private static final int SPAN_DIGITS = 16;
  private static final int DIGITS = TRACE_DIGITS + SPAN_DIGITS;

  private static final int NO_SPAN = 0;
  private static final int SAMPLED = 1;
  private static final int UNSAMPLED = 2;

  private static final VarHandle INTS = MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.nativeOrder());
  private static final VarHandle LONGS = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());
  private static final VarHandle TEXT = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

  private final ByteBuffer memory;
  private final int at;
  private final int state;
  private final byte[] text = new byte[DIGITS];

  ThreadSlot(ByteBuffer memory, int at, int number, long start) {
    this.memory = memory;
    this.at = at;
    this.state = at + DIGITS + Integer.BYTES;
    memory.putInt(state, NO_SPAN);
    memory.putInt(at + DIGITS, number);
    memory.putLong(at + DIGITS + 2 * Integer.BYTES, start);
  }

  /** Tells that the thread works for no span. */
  public void clear() {
    INTS.setOpaque(memory, state, NO_SPAN);
    VarHandle.storeStoreFence();
  }

  /**
   * Tells the span that the thread works for.
   *
   * @param trace 32 hexadecimal digits
   * @param span 16 hexadecimal digits
   */
  @SuppressWarnings("deprecation") // getBytes copies digits at once
  public void set(String trace, String span, boolean sampled) {
    clear();
    trace.getBytes(0, TRACE_DIGITS, text, 0);
    span.getBytes(0, SPAN_DIGITS, text, TRACE_DIGITS);
    for (int i = 0; i < DIGITS; i += Long.BYTES) {
      LONGS.set(memory, at + i, (long) TEXT.get(text, i));
    }
    INTS.setRelease(memory, state, sampled ? SAMPLED : UNSAMPLED);
  }
}
