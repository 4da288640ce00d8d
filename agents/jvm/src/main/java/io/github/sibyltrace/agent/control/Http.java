package io.github.sibyltrace.agent.control;

import com.grack.nanojson.JsonParser;
import com.grack.nanojson.JsonParserException;
import io.github.sibyltrace.agent.plan.Limits;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.zip.GZIPOutputStream;

/** Requests to a Sibyl service. */
final class Http {
  private static final int TIMEOUT = 15_000; // ms
  private static final int MAX_RETRY_AFTER = 300; // s
  private static final int MIN_COMPRESSED = 1024; // bytes

  /** An error response. */
  static final class RefusedException extends IOException {
    private static final long serialVersionUID = 1;
    final int code;
    final int retryAfter; // s; 0: not given

    RefusedException(int code, String reason, int retryAfter) {
      super("HTTP status " + code + ": " + reason);
      this.code = code;
      this.retryAfter = retryAfter;
    }
  }

  private final String base;
  private final String token;

  /**
   * Creates a client.
   *
   * @param token null: none
   */
  Http(URI base, String token) {
    this.base = base.toString().replaceAll("/+$", "");
    this.token = token;
  }

  /**
   * Prepares a request.
   *
   * @param most time to wait for the connection, and for each part of the answer, in ms
   */
  HttpURLConnection open(String path, long most) throws IOException {
    HttpURLConnection c = (HttpURLConnection) new URL(base + path).openConnection();
    c.setConnectTimeout((int) Math.min(TIMEOUT, most));
    c.setReadTimeout((int) Math.min(Integer.MAX_VALUE, most));
    c.setUseCaches(false);
    if (token != null) {
      c.setRequestProperty("Authorization", "Bearer " + token);
    }
    return c;
  }

  /** Sends a body and returns that of the answer. */
  byte[] send(String method, String path, String contentType, byte[] body) throws IOException {
    HttpURLConnection c = open(path, TIMEOUT);
    c.setRequestMethod(method);
    c.setDoOutput(true);
    c.setRequestProperty("Content-Type", contentType);
    byte[] sent = body;
    if (body.length >= MIN_COMPRESSED) {
      c.setRequestProperty("Content-Encoding", "gzip");
      sent = gzip(body);
    }
    c.setFixedLengthStreamingMode(sent.length);
    try (OutputStream out = c.getOutputStream()) {
      out.write(sent);
    }
    return receive(c);
  }

  private static byte[] gzip(byte[] body) throws IOException {
    ByteArrayOutputStream b = new ByteArrayOutputStream();
    try (GZIPOutputStream z = new GZIPOutputStream(b)) {
      z.write(body);
    }
    return b.toByteArray();
  }

  /** Returns the body of an answer, empty for "not modified". */
  static byte[] receive(HttpURLConnection c) throws IOException {
    int code = c.getResponseCode();
    if (code / 100 == 2) {
      return read(c.getInputStream(), Limits.BODY);
    }
    if (code == HttpURLConnection.HTTP_NOT_MODIFIED) {
      return new byte[0];
    }
    String reason = "";
    try {
      reason = JsonParser.object().from(new String(read(c.getErrorStream(), 4096), StandardCharsets.UTF_8)).getString("error", "");
    } catch (JsonParserException e) {
      // answers of proxies are not JSON
    }
    throw new RefusedException(code, reason, Math.max(0, Math.min(c.getHeaderFieldInt("Retry-After", 0), MAX_RETRY_AFTER)));
  }

  /** Reads a body of at most the given number of bytes; null: there is none. Reading it to its end keeps the connection open. */
  private static byte[] read(InputStream in, int most) throws IOException {
    if (in == null) {
      return new byte[0];
    }
    try (InputStream i = in) {
      return i.readNBytes(most);
    }
  }
}
