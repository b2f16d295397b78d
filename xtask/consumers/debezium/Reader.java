import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads a ring's log with Debezium's embedded engine and its MySQL connector, without a snapshot: tables are known from the log's own
 * DDL, from its first transaction on.
 *
 * <p>Prints one line for each row that is inserted into {@code shop.orders} (its first column).
 */
public final class Reader {
  private static final Pattern ID = Pattern.compile("\"after\":\\{\"id\":(\\d+)");

  public static void main(String[] arguments) throws Exception {
    Path folder = Files.createTempDirectory("debezium");
    Properties settings = new Properties();
    settings.setProperty("name", "reader");
    settings.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
    settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
    settings.setProperty("offset.storage.file.filename", folder.resolve("offsets").toString());
    settings.setProperty("offset.flush.interval.ms", "0");
    settings.setProperty("schema.history.internal", "io.debezium.storage.file.history.FileSchemaHistory");
    settings.setProperty("schema.history.internal.file.filename", folder.resolve("schema").toString());
    settings.setProperty("topic.prefix", "ring");
    settings.setProperty("database.hostname", arguments[0]);
    settings.setProperty("database.port", arguments[1]);
    settings.setProperty("database.user", arguments[2]);
    settings.setProperty("database.password", arguments[3]);
    settings.setProperty("database.server.id", "4714");
    settings.setProperty("database.ssl.mode", "disabled");
    settings.setProperty("table.include.list", "shop.orders");
    settings.setProperty("snapshot.mode", "never");
    settings.setProperty("converter.schemas.enable", "false");
    settings.setProperty("errors.retry.delay.initial.ms", "200");
    settings.setProperty("errors.retry.delay.max.ms", "1000");
    settings.setProperty("errors.max.retries", "-1");
    try (DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class)
            .using(settings)
            .notifying(
                change -> {
                  Matcher found = change.value() == null ? null : ID.matcher(change.value());
                  if (found != null && found.find()) {
                    System.out.println("ROW " + found.group(1));
                  }
                })
            .using(
                (success, message, error) -> {
                  System.out.println("ENDED " + message + " " + error);
                  System.exit(1);
                })
            .build()) {
      engine.run();
    }
  }
}
