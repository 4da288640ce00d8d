package io.github.sibyltrace.agent.control;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

class ProtobufTest {
  private static final byte[] MESSAGE = new Protobuf().integer(1, 150).text(2, "testing").message(3, new Protobuf().integer(1, -1)).toBytes();

  @Test
  void writesTheWireFormat() throws IOException {
    assertArrayEquals(new byte[] {0x08, (byte) 0x96, 0x01}, Arrays.copyOf(MESSAGE, 3));
    Protobuf.Reader r = new Protobuf.Reader(MESSAGE);
    assertTrue(r.next());
    assertEquals(150, r.number);
    assertTrue(r.next());
    assertEquals("testing", new String(r.value, "UTF-8"));
    assertTrue(r.next());
    Protobuf.Reader inner = new Protobuf.Reader(r.value);
    assertTrue(inner.next());
    assertEquals(-1, inner.number);
    assertFalse(r.next());
    assertNull(Protobuf.Reader.find(MESSAGE, 4));
  }

  private static void readAll(byte[] message) throws IOException {
    for (Protobuf.Reader r = new Protobuf.Reader(message); r.next(); ) {
      assertTrue(r.value.length <= message.length);
    }
  }

  @Test
  void refusesBrokenMessages() {
    assertThrows(IOException.class, () -> readAll(Arrays.copyOf(MESSAGE, MESSAGE.length - 1)));
    assertThrows(IOException.class, () -> readAll(new byte[] {0x12, (byte) 0xff, (byte) 0xff, (byte) 0xff, (byte) 0xff, 0x0f}));
    assertThrows(IOException.class, () -> readAll(new byte[] {0x0b}));
    byte[] endless = new byte[20];
    Arrays.fill(endless, (byte) 0xff);
    assertThrows(IOException.class, () -> readAll(endless));
    Random random = new Random(1);
    for (int i = 0; i < 10_000; i++) {
      byte[] noise = new byte[random.nextInt(40)];
      random.nextBytes(noise);
      try {
        readAll(noise);
      } catch (IOException e) {
        // the only exception that broken messages may cause
      }
    }
  }
}
