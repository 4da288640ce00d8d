package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.sibyltrace.agent.classify.Classifier;
import java.io.File;
import java.net.URI;
import java.net.URL;
import java.net.URLStreamHandler;
import java.security.CodeSource;
import java.security.ProtectionDomain;
import java.security.cert.Certificate;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class OwnClassesTest {
  private static final ClassLoader LOADER = OwnClassesTest.class.getClassLoader();

  @TempDir File folder;
  private Classifier classifier;

  @BeforeEach
  void createClassifier() throws Exception {
    classifier = new Classifier("com.shop.Main", List.of());
  }

  /** Returns the domain of classes from a place. */
  private static ProtectionDomain from(String place) throws Exception {
    URL url =
        place.startsWith("file:")
            ? URI.create(place).toURL()
            : new URL(
                null,
                place,
                new URLStreamHandler() {
                  @Override
                  protected java.net.URLConnection openConnection(URL u) {
                    throw new UnsupportedOperationException();
                  }
                });
    return new ProtectionDomain(new CodeSource(url, (Certificate[]) null), null);
  }

  private OwnClasses own(String include, String own, String exclude) {
    return new OwnClasses(pattern(include), pattern(own), pattern(exclude), classifier);
  }

  private static Pattern pattern(String text) {
    return text == null ? null : Pattern.compile(text);
  }

  private void check(boolean want, String name, String place) throws Exception {
    OwnClasses own = own(null, null, null);
    assertEquals(want, own.contains(name, LOADER, from(place)), name + " from " + place);
    assertEquals(want, own.mayContain(name, LOADER, from(place)), name + " from " + place + ", known");
  }

  @Test
  void knowsThePlacesOfApplications() throws Exception {
    check(true, "com.shop.Cart", "file:/app/target/classes/");
    check(true, "com.shop.Cart", "file:/tomcat/webapps/shop/WEB-INF/classes/");
    check(true, "com.shop.Cart", "jar:nested:/app/shop.jar/!BOOT-INF/classes/!/");
    check(false, "com.zaxxer.Pool", "jar:nested:/app/shop.jar/!BOOT-INF/lib/pool.jar!/");
    check(false, "com.zaxxer.Pool", "file:/app/lib/pool.jar");
    check(false, "java.sql.Driver", "file:/app/target/classes/");
    assertEquals(false, own(null, null, null).contains("com.shop.Cart", LOADER, null));
  }

  @Test
  void classesThatWereNotClassifiedMayBeOwn() throws Exception {
    assertEquals(true, own(null, null, null).mayContain("com.zaxxer.Pool", LOADER, from("file:/app/lib/pool.jar")));
  }

  @Test
  void followsTheConfiguration() throws Exception {
    OwnClasses own = own("com\\.shop\\..*", null, ".*Dto");
    assertEquals(true, own.contains("com.shop.Cart", LOADER, from("file:/app/lib/all.jar")));
    assertEquals(false, own.contains("com.shop.CartDto", LOADER, from("file:/app/lib/all.jar")));
    assertEquals(false, own.contains("org.shop.Cart", LOADER, from("file:/app/target/classes/")));

    own = own(null, "com\\.zaxxer\\..*", ".*Dto");
    assertEquals(true, own.contains("com.zaxxer.Pool", LOADER, from("file:/app/lib/pool.jar")));
    assertEquals(false, own.contains("com.zaxxer.PoolDto", LOADER, from("file:/app/lib/pool.jar")));
    assertEquals(true, own.contains("com.shop.Cart", LOADER, from("file:/app/target/classes/")));
  }
}
