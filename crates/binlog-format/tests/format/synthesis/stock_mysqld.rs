//! A stock mysqlbinlog decodes a synthesized file, and a stock mysqld applies it.

use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;
use testkit::mysqld::client::mysqlbinlog;
use testkit::mysqld::client::verified_sql;

use super::own_transactions::{GTIDS, file};

#[test]
fn mysqlbinlog_decodes_our_rows_as_mysqld_would_write_them() {
    let tree = MysqlTree::require();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("binlog.000001");
    std::fs::write(&path, file()).unwrap();
    let done = mysqlbinlog(&tree, &["--verify-binlog-checksum", "-vv"], &[&path]).unwrap();
    let text = done.into_text("mysqlbinlog").unwrap();
    for expected in [
        "server v 9.7.0-witness",
        "# Unrecognized ignorable event",
        "SET @@SESSION.GTID_NEXT= '3e11fa47-71ca-11e1-9e33-c80aa9429562:demo:1'",
        "immediate_commit_timestamp=1700000000123456",
        "### INSERT INTO `made`.`account`",
        "###   @1=9223372036854775807 /* LONGINT meta=0 nullable=0 is_null=0 */",
        "###   @2='Grace' /* VARSTRING(80) meta=80 nullable=1 is_null=0 */",
        "###   @3=NULL /* VARSTRING(1200) meta=1200 nullable=1 is_null=1 */",
        "###   @4=-5 (4294967291) /* INT meta=0 nullable=1 is_null=0 */",
        "### UPDATE `made`.`account`",
        "### DELETE FROM `made`.`account`",
        "Xid = 1006",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn a_mysqld_that_replays_our_file_has_our_rows_and_gtids() {
    let tree = MysqlTree::require();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("binlog.000001");
    std::fs::write(&path, file()).unwrap();
    let sql = verified_sql(&tree, &[&path]).unwrap();

    let server = Mysqld::launch(&tree).unwrap();
    let client = server.client();
    client.sql(&sql).unwrap();
    let rows = client
        .sql("SELECT id, owner, LEFT(note, 12), amount FROM made.account ORDER BY id")
        .unwrap();
    let rows: Vec<String> = rows.0.iter().map(|row| row.join("|")).collect();
    assert_eq!(
        rows,
        [
            "1|Ada|NULL|90",
            "2|Grace|got ten|5",
            "3|Edsger|NULL|7",
            "9223372036854775807|ünïcödé ✓|x|-2147483648",
        ]
    );
    assert_eq!(client.gtid_executed().unwrap(), GTIDS);
}
