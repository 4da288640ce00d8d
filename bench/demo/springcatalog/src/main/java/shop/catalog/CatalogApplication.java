package shop.catalog;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.context.WebServerPortFileWriter;

/** The catalog of the demo's shop. It writes its port to the file that the environment variable PORTFILE names. */
@SpringBootApplication
public class CatalogApplication {
  public static void main(String[] arguments) {
    SpringApplication application = new SpringApplication(CatalogApplication.class);
    application.addListeners(new WebServerPortFileWriter());
    application.run(arguments);
  }
}
