"""Reads a ring's log with python-mysql-replication, from its first transaction on, and goes on by GTIDs when its connection breaks.

Prints one line for each row that is inserted into `shop.orders` (its first column), when its transaction has ended."""

import sys
import time

from pymysql.err import MySQLError
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, XidEvent
from pymysqlreplication.row_event import WriteRowsEvent

host, port, user, password = sys.argv[1:5]
login = {"host": host, "port": int(port), "user": user, "passwd": password}
executed, gtid, rows = {}, None, []


def gtid_set():
    """What was read, as a GTID set: the ring's log has no gaps within a server's numbers."""
    return ",".join(f"{uuid}:1-{last}" for uuid, last in executed.items())


while True:
    try:
        stream = BinLogStreamReader(
            # Passes copies, because the library changes its arguments.
            connection_settings=dict(login),
            ctl_connection_settings=dict(login),
            server_id=4711,
            blocking=True,
            auto_position=gtid_set(),
            only_events=[GtidEvent, XidEvent, WriteRowsEvent],
        )
        for event in stream:
            if isinstance(event, GtidEvent):
                gtid, rows = event.gtid, []
            elif isinstance(event, WriteRowsEvent):
                if (event.schema, event.table) == ("shop", "orders"):
                    rows += [next(iter(row["values"].values())) for row in event.rows]
            else:
                for row in rows:
                    print("ROW", row, flush=True)
                uuid, number = gtid.split(":")
                executed[uuid] = int(number)
                rows = []
    except (MySQLError, OSError) as error:
        print("AGAIN", error, flush=True)
        time.sleep(0.2)
