//! The log entries of a real server for all kinds of transactions, and the decoder's result for
//! them.

use std::sync::Arc;

use applier::decode::Decoder;
use applier::keys::Fold;
use applier::schema::{TableName, TableShape};
use applier::source::{FileSource, Source};
use applier::transaction::{Body, Changed, SchemaChange, Step};
use binlog_format::event::EventRef;
use binlog_format::events::Query;
use binlog_format::framing::FramedTransaction;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

use crate::shapes::{key, table};

/// Returns all transactions in a server's binlog files.
fn logged(server: &Mysqld) -> Vec<FramedTransaction> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let files = server.binlog_files().unwrap();
        let mut source = FileSource::open(files, None, 1 << 30).await.unwrap();
        let mut all = Vec::new();
        while let Some(transaction) = source.next().await.unwrap() {
            all.push(transaction);
        }
        all
    })
}

/// Returns a shape in which column 0 is the primary key.
fn shape(name: &TableName) -> Option<Arc<TableShape>> {
    Some(Arc::new(TableShape {
        primary_key: Some(key(&[0])),
        ..table(&name.table, &[("id", Fold::Bytes)])
    }))
}

/// Describes a transaction in one line: `rows: tables, count`, or a barrier with its steps and its
/// end.
fn line(framed: &FramedTransaction) -> String {
    let decoded = match Decoder::new(1 << 20).parse(framed) {
        Ok(parsed) => parsed.finish(shape),
        Err(failure) => return failure.cause.to_string(),
    };
    let decoded = decoded.unwrap();
    assert_eq!(decoded.gtid, framed.gtid);
    match &decoded.body {
        Body::Rows(changes) => {
            let tables: Vec<_> = changes
                .tables
                .iter()
                .map(|table| table.shape.name.table.to_string())
                .collect();
            format!("rows: {} of {}", changes.rows.len(), tables.join(" "))
        }
        Body::Barrier(barrier) => {
            let steps: Vec<String> = barrier
                .steps
                .iter()
                .map(|step| match step {
                    Step::Rows(events) => format!("{} events", events.len()),
                    Step::Statement(statement) => {
                        let query =
                            Query::decode(EventRef::new(&statement.query).unwrap()).unwrap();
                        let text = String::from_utf8(query.statement.to_vec()).unwrap();
                        let words: Vec<&str> = text.split_whitespace().take(2).collect();
                        format!("{} +{}", words.join(" "), statement.variables.len())
                    }
                })
                .collect();
            let schema = match &barrier.changes {
                SchemaChange::Nothing => String::new(),
                SchemaChange::Anything => " (any)".to_owned(),
                SchemaChange::Tables(tables) => {
                    let name = |changed: &Changed| match changed {
                        Changed::Table(name) | Changed::Referred(name) => name.table.to_string(),
                        Changed::Schema(schema) => format!("{schema}.*"),
                    };
                    let names: Vec<String> = tables.iter().map(name).collect();
                    format!(" ({})", names.join(" "))
                }
            };
            format!("{} -> {:?}{schema}", steps.join(", "), barrier.end)
        }
    }
}

const STATEMENTS: &str = "
    CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a DOUBLE, b TEXT); CREATE TABLE u LIKE t;
    CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM;
    INSERT INTO t (a) VALUES (1), (2);
    BEGIN; INSERT INTO t (a) VALUES (3); UPDATE u SET a = 1; INSERT INTO u (a) VALUES (4); DELETE FROM t WHERE id = 1; COMMIT;
    BEGIN; INSERT INTO t (a) VALUES (5); SAVEPOINT s; INSERT INTO u (a) VALUES (6); COMMIT;
    SET binlog_rows_query_log_events = 1; INSERT INTO t (a) VALUES (7); SET binlog_rows_query_log_events = 0;
    SET binlog_transaction_compression = 1; INSERT INTO t (a) VALUES (8), (9); SET binlog_transaction_compression = 0;
    INSERT INTO m VALUES (1);
    SET @x = 3, binlog_format = STATEMENT; INSERT INTO t (a) VALUES (RAND() + @x);
    BEGIN; INSERT INTO t (a) VALUES (10); UPDATE u SET a = 2; COMMIT;
    BEGIN; INSERT INTO t (a) VALUES (15); SAVEPOINT s; UPDATE u SET a = 3; COMMIT; SET binlog_format = ROW;
    CREATE TABLE copy (PRIMARY KEY (id)) AS SELECT id FROM t;
    XA START 'x'; INSERT INTO t (a) VALUES (11); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x';
    XA START 'y'; INSERT INTO t (a) VALUES (12); XA END 'y'; XA PREPARE 'y'; XA ROLLBACK 'y';
    XA START 'z', 'b', 5; INSERT INTO t (a) VALUES (13); XA END 'z', 'b', 5; XA COMMIT 'z', 'b', 5 ONE PHASE;
    SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:5'; BEGIN; COMMIT; SET gtid_next = AUTOMATIC;
    SET gtid_next = 'AUTOMATIC:tagged'; INSERT INTO t (a) VALUES (14); SET gtid_next = AUTOMATIC;
    CREATE USER other; GRANT SELECT ON d.* TO other; DROP TABLE u;";

#[test]
fn every_kind_of_transaction_is_rows_or_a_barrier() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server.client().sql(STATEMENTS).unwrap();
    let lines: Vec<String> = logged(&server).iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "CREATE DATABASE +0 -> ByItself",
            "CREATE TABLE +0 -> ByItself (t)",
            "CREATE TABLE +0 -> ByItself (u)",
            "CREATE TABLE +0 -> ByItself (m)",
            "rows: 2 of t",
            "rows: 3 of t u",
            "rows: 2 of t u",
            "rows: 1 of t",
            "rows: 2 of t",
            "rows: 1 of m",
            "INSERT INTO +3 -> Commit",
            "INSERT INTO +1, UPDATE u +0 -> Commit",
            "INSERT INTO +1, SAVEPOINT `s` +0, UPDATE u +0 -> Commit",
            "CREATE TABLE +0, 2 events -> Commit (copy)",
            "XA START +0, 2 events, XA END +0 -> Xa(\"XA PREPARE X'78',X'',1\")",
            "XA COMMIT +0 -> ByItself",
            "XA START +0, 2 events, XA END +0 -> Xa(\"XA PREPARE X'79',X'',1\")",
            "XA ROLLBACK +0 -> ByItself",
            "XA START +0, 2 events, XA END +0 -> Xa(\"XA COMMIT X'7a',X'62',5 ONE PHASE\")",
            "rows: 0 of ",
            "rows: 1 of t",
            "CREATE USER +0 -> ByItself",
            "GRANT SELECT +0 -> ByItself",
            "DROP TABLE +0 -> ByItself (u)",
        ]
    );
}

#[test]
fn load_data_in_statement_format_is_refused_and_in_row_format_is_rows() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let file = server.data_dir().join("loaded.txt");
    std::fs::write(&file, "1\n2\n").unwrap();
    let file = file.display();
    server
        .client()
        .sql(&format!(
            "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY); LOAD DATA INFILE '{file}' INTO TABLE t; \
             DELETE FROM t; SET binlog_format = STATEMENT; LOAD DATA INFILE '{file}' INTO TABLE t;"
        ))
        .unwrap();
    let lines: Vec<String> = logged(&server).iter().map(line).collect();
    assert_eq!(lines[2..4], ["rows: 2 of t", "rows: 2 of t"]);
    assert!(
        lines[4].contains("set binlog_format=ROW on the source"),
        "{}",
        lines[4]
    );
}
