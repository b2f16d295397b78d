//! A synthesized binlog file that contains every kind of transaction that can be synthesized.
use binlog_format::MAGIC;
use binlog_format::canonical::stamp_payload;
use binlog_format::events::{
    CommitTimestamp, EncodeEvent, EventOrigin, FormatDescription, Ignorable, LogicalClock,
    PreviousGtids, Rotate, ServerVersion, TableId,
};
use binlog_format::synthesis::{
    Column, ColumnType, RowTransaction, Table, TransactionHead, Value, statement_transaction,
};
use bytes::Bytes;

const SOURCE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

/// The GTIDs of [`file`].
pub(crate) const GTIDS: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:demo:1";

/// The origin of a transaction; `name` is `number` or `tag:number`.
pub(crate) fn head(name: &str, sequence_number: i64) -> TransactionHead {
    TransactionHead {
        gtid: format!("{SOURCE}:{name}").parse().unwrap(),
        server_id: 4242,
        thread_id: 17,
        commit: CommitTimestamp(1_700_000_000_123_456),
        version: ServerVersion(90_700),
        clock: LogicalClock {
            last_committed: sequence_number - 1,
            sequence_number,
        },
        xid: 1000 + sequence_number as u64,
    }
}

/// The table of [`file`].
pub(crate) fn account() -> Table {
    let column = |column_type, nullable| Column {
        column_type,
        nullable,
    };
    Table {
        id: TableId(77),
        schema: "made".into(),
        name: "account".into(),
        columns: vec![
            column(ColumnType::BigInt, false),
            column(ColumnType::Varchar { max_bytes: 80 }, true),
            column(ColumnType::Varchar { max_bytes: 1200 }, true),
            column(ColumnType::Int, true),
        ],
    }
}

/// A row of the table.
pub(crate) fn row(
    id: i64,
    owner: Option<&str>,
    note: Option<&str>,
    amount: Option<i32>,
) -> Vec<Value> {
    let text = |text: Option<&str>| text.map_or(Value::Null, |text| Value::Text(text.into()));
    vec![
        Value::BigInt(id),
        text(owner),
        text(note),
        amount.map_or(Value::Null, Value::Int),
    ]
}

/// The payloads of [`file`].
pub(crate) fn payloads() -> Vec<Bytes> {
    let table = account();
    let long = "a long note, ".repeat(50);
    let mut insert = RowTransaction::begin(head("3", 3));
    let rows = [
        row(1, Some("Ada"), Some(&long), Some(100)),
        row(2, Some("Grace"), None, Some(-5)),
        row(i64::MIN, None, Some(""), None),
        row(i64::MAX, Some("ünïcödé ✓"), Some("x"), Some(i32::MIN)),
    ];
    insert.insert(&table, &rows).unwrap();

    let mut transfer = RowTransaction::begin(head("4", 4));
    let changed = [
        (rows[0].clone(), row(1, Some("Ada"), None, Some(90))),
        (
            rows[1].clone(),
            row(2, Some("Grace"), Some("got ten"), Some(5)),
        ),
    ];
    transfer.update(&table, &changed).unwrap();
    transfer.delete(&table, &rows[2..3]).unwrap();

    let mut tagged = RowTransaction::begin(head("demo:1", 5));
    tagged
        .insert(&table, &[row(3, Some("Edsger"), None, Some(7))])
        .unwrap();

    vec![
        statement_transaction(head("1", 1), "", "CREATE DATABASE made"),
        statement_transaction(
            head("2", 2),
            "made",
            "CREATE TABLE account (id BIGINT PRIMARY KEY, owner VARCHAR(20), note VARCHAR(300), amount INT) \
             DEFAULT CHARSET utf8mb4",
        ),
        insert.commit(),
        transfer.commit(),
        tagged.commit(),
        RowTransaction::begin(head("5", 6)).commit(),
    ]
}

/// A whole file, as in a ring's log.
pub(crate) fn file() -> Vec<u8> {
    let mut content = FormatDescription::built_in_event();
    PreviousGtids::default().encode_into(EventOrigin::default(), &mut content);
    for payload in payloads() {
        let marker = Ignorable {
            body: b"a marker".as_slice().into(),
        };
        marker.encode_into(Ignorable::origin(1_700_000_000, 4242), &mut content);
        content.extend_from_slice(&payload);
    }
    Rotate::to("binlog.000002").encode_into(EventOrigin::default(), &mut content);
    let mut file = MAGIC.to_vec();
    stamp_payload(&content, MAGIC.len() as u64, &mut file).unwrap();
    file
}
