package io.github.sibyltrace.agent.plan;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** Computes the hashes of the tracepoint protocol, as agents/tracepoint/protocol/hash.go describes them. */
final class Encoder {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

  Encoder(String messageType) {
    string(messageType);
  }

  void integer(long n) {
    while ((n & ~0x7fL) != 0) {
      bytes.write((int) (n & 0x7f | 0x80));
      n >>>= 7;
    }
    bytes.write((int) n);
  }

  void decimal(double x) {
    bytes.writeBytes(ByteBuffer.allocate(8).putDouble(x).array());
  }

  void bool(boolean b) {
    integer(b ? 1 : 0);
  }

  void string(String s) {
    byte[] b = s.getBytes(StandardCharsets.UTF_8);
    integer(b.length);
    bytes.writeBytes(b);
  }

  /** Returns the first 32 hexadecimal digits of the SHA-256. */
  String sum() {
    try {
      byte[] hash = MessageDigest.getInstance("SHA-256").digest(bytes.toByteArray());
      StringBuilder b = new StringBuilder(32);
      for (int i = 0; i < 16; i++) {
        b.append(Character.forDigit(hash[i] >> 4 & 15, 16)).append(Character.forDigit(hash[i] & 15, 16));
      }
      return b.toString();
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every JVM has it
    }
  }
}
