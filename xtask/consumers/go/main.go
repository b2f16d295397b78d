// Reads a ring's log from its first transaction with go-mysql's BinlogSyncer. The library reconnects by itself, and continues by GTIDs.
//
// At the end of each transaction, prints a line for each row inserted into `shop.orders`: the row's first column.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

func main() {
	port, err := strconv.ParseUint(os.Args[2], 10, 16)
	if err != nil {
		log.Fatal(err)
	}
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID:        4712,
		Flavor:          mysql.MySQLFlavor,
		Host:            os.Args[1],
		Port:            uint16(port),
		User:            os.Args[3],
		Password:        os.Args[4],
		HeartbeatPeriod: time.Second,
		ReadTimeout:     5 * time.Second,
	})
	nothing, err := mysql.ParseMysqlGTIDSet("")
	if err != nil {
		log.Fatal(err)
	}
	stream, err := syncer.StartSyncGTID(nothing)
	if err != nil {
		log.Fatal(err)
	}
	var rows []any
	for {
		event, err := stream.GetEvent(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		switch of := event.Event.(type) {
		case *replication.GTIDEvent:
			rows = nil
		case *replication.RowsEvent:
			inserts := event.Header.EventType == replication.WRITE_ROWS_EVENTv2
			if inserts && string(of.Table.Schema) == "shop" && string(of.Table.Table) == "orders" {
				for _, row := range of.Rows {
					rows = append(rows, row[0])
				}
			}
		case *replication.XIDEvent:
			for _, row := range rows {
				fmt.Println("ROW", row)
			}
			rows = nil
		}
	}
}
