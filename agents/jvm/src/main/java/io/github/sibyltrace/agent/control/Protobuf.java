package io.github.sibyltrace.agent.control;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Writes and reads the few kinds of fields that messages of OpAMP need, in the wire format of Protocol Buffers. */
final class Protobuf {
  private static final int VARINT = 0;
  private static final int FIXED64 = 1;
  private static final int BYTES = 2;
  private static final int FIXED32 = 5;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();

  Protobuf integer(int field, long value) {
    varint((long) field << 3 | VARINT);
    varint(value);
    return this;
  }

  Protobuf bytes(int field, byte[] value) {
    varint((long) field << 3 | BYTES);
    varint(value.length);
    out.writeBytes(value);
    return this;
  }

  Protobuf text(int field, String value) {
    return bytes(field, value.getBytes(StandardCharsets.UTF_8));
  }

  Protobuf message(int field, Protobuf value) {
    return bytes(field, value.toBytes());
  }

  private void varint(long value) {
    long rest = value;
    while ((rest & ~0x7fL) != 0) {
      out.write((int) (rest & 0x7f | 0x80));
      rest >>>= 7;
    }
    out.write((int) rest);
  }

  byte[] toBytes() {
    return out.toByteArray();
  }

  /** Reads the fields of a message one after the other. */
  static final class Reader {
    private final byte[] message;
    private int at;
    int field; // number of the field that was read last
    long number; // its value, if it is an integer
    byte[] value; // its value, if it has a length

    Reader(byte[] message) {
      this.message = message;
    }

    /** Reads a field. It returns false at the end. */
    boolean next() throws IOException {
      if (at == message.length) {
        return false;
      }
      long head = varint();
      field = (int) (head >>> 3);
      number = 0;
      value = new byte[0];
      switch ((int) (head & 7)) {
        case VARINT:
          number = varint();
          break;
        case FIXED64:
          skip(8);
          break;
        case FIXED32:
          skip(4);
          break;
        case BYTES:
          int from = skip(varint());
          value = Arrays.copyOfRange(message, from, at);
          break;
        default:
          throw new IOException("not a message of OpAMP");
      }
      return true;
    }

    /** Skips some bytes and returns where they begin. */
    private int skip(long n) throws IOException {
      if (n < 0 || n > message.length - at) {
        throw new IOException("the message is cut off");
      }
      at += (int) n;
      return at - (int) n;
    }

    private long varint() throws IOException {
      long n = 0;
      for (int shift = 0; shift < 64; shift += 7) {
        byte b = message[skip(1)];
        n |= (long) (b & 0x7f) << shift;
        if (b >= 0) {
          return n;
        }
      }
      throw new IOException("a number of more than 64 bits");
    }

    /** Returns the last value of a field of the message, null if it is missing. */
    static byte[] find(byte[] message, int field) throws IOException {
      byte[] found = null;
      for (Reader r = new Reader(message); r.next(); ) {
        found = r.field == field ? r.value : found;
      }
      return found;
    }
  }
}
