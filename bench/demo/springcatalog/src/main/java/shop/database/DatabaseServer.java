package shop.database;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import org.h2.tools.Server;

/**
 * The database of the catalog, in memory, in a process of its own: a statement is a round trip, as it is with every database server. It writes its port to the
 * file that the environment variable PORTFILE names, and ends at the end of standard input: the demo that started it is gone.
 */
public final class DatabaseServer {
  private DatabaseServer() {}

  public static void main(String[] arguments) throws IOException, SQLException {
    System.setProperty("h2.bindAddress", "127.0.0.1");
    // The database exists as long as a connection. Clients can open no other one, and create none.
    try (Connection open = DriverManager.getConnection("jdbc:h2:mem:catalog", "catalog", System.getenv("DATABASE_PASSWORD"))) {
      Server server = Server.createTcpServer("-tcpPort", "0", "-tcpDaemon", "-key", "catalog", "mem:catalog").start();
      Files.writeString(Path.of(System.getenv("PORTFILE")), Integer.toString(server.getPort()));
      while (System.in.read() >= 0) {
        // The demo writes nothing.
      }
      server.stop();
    }
  }
}
