import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.GtidEventData;
import com.github.shyiko.mysql.binlog.event.TableMapEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.XidEventData;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads a ring's log with mysql-binlog-connector-java, from its first transaction on; the library keeps the GTIDs, and is told to connect
 * again when its connection breaks.
 *
 * <p>Prints one line for each row that is inserted into {@code shop.orders} (its first column), when its transaction has ended.
 */
public final class Reader {
  public static void main(String[] arguments) throws Exception {
    BinaryLogClient client =
        new BinaryLogClient(
            arguments[0], Integer.parseInt(arguments[1]), arguments[2], arguments[3]);
    client.setServerId(4713);
    client.setGtidSet("");
    client.setHeartbeatInterval(1000);
    client.setKeepAlive(false);
    Map<Long, String> tables = new HashMap<>();
    List<Serializable> rows = new ArrayList<>();
    client.registerEventListener(
        event -> {
          EventData data = event.getData();
          if (data instanceof GtidEventData) {
            rows.clear();
          } else if (data instanceof TableMapEventData table) {
            tables.put(table.getTableId(), table.getDatabase() + "." + table.getTable());
          } else if (data instanceof WriteRowsEventData inserted) {
            if ("shop.orders".equals(tables.get(inserted.getTableId()))) {
              inserted.getRows().forEach(row -> rows.add(row[0]));
            }
          } else if (data instanceof XidEventData) {
            rows.forEach(row -> System.out.println("ROW " + row));
            rows.clear();
          }
        });
    while (true) {
      try {
        client.connect();
      } catch (IOException error) {
        System.out.println("AGAIN " + error.getMessage());
      }
      Thread.sleep(200);
    }
  }
}
