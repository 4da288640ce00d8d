package io.github.sibyltrace.agent.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.net.URL;
import java.net.URLStreamHandler;
import java.security.CodeSource;
import java.security.ProtectionDomain;
import java.security.cert.Certificate;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class OwnClassesTest {
  private static final ClassLoader LOADER = OwnClassesTest.class.getClassLoader();

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

  private static void check(boolean want, String name, String place) throws Exception {
    assertEquals(want, new OwnClasses(null, null).contains(name, LOADER, from(place)), name + " from " + place);
  }

  @Test
  void knowsThePlacesOfApplications() throws Exception {
    check(true, "com.shop.Cart", "file:/app/target/classes/");
    check(true, "com.shop.Cart", "file:/tomcat/webapps/shop/WEB-INF/classes/");
    check(true, "com.shop.Cart", "jar:nested:/app/shop.jar/!BOOT-INF/classes/!/");
    check(false, "com.zaxxer.Pool", "jar:nested:/app/shop.jar/!BOOT-INF/lib/pool.jar!/");
    check(false, "com.zaxxer.Pool", "file:/app/lib/pool.jar");
    check(false, "java.sql.Driver", "file:/app/target/classes/");
    check(false, "org.springframework.boot.loader.Launcher", "file:/app/target/classes/");
    assertEquals(false, new OwnClasses(null, null).contains("com.shop.Cart", LOADER, null));
  }

  @Test
  void followsTheConfiguration() throws Exception {
    OwnClasses own = new OwnClasses(Pattern.compile("com\\.shop\\..*"), Pattern.compile(".*Dto"));
    assertEquals(true, own.contains("com.shop.Cart", LOADER, from("file:/app/lib/all.jar")));
    assertEquals(false, own.contains("com.shop.CartDto", LOADER, from("file:/app/lib/all.jar")));
    assertEquals(false, own.contains("org.shop.Cart", LOADER, from("file:/app/target/classes/")));
  }
}
