//! The final checks of every test. Each acknowledged row must be present. The ring's log must contain exactly the primary's transactions,
//! each of them once. The log is read with the stock `mysqlbinlog`, not with this project's code.

use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;
use testkit::cluster::LogFiles;
use testkit::mysqld::Mysqld;
use testkit::mysqld::client::verified_sql;

use crate::written_rows::WrittenRows;

/// Returns the GTIDs of a member's log in log order, as `mysqlbinlog --verify-binlog-checksum` prints them.
///
/// # Errors
/// If mysqlbinlog refuses a file.
pub fn ring_gtids(server: &Mysqld, files: &LogFiles) -> Result<Vec<String>> {
    Ok(gtids_of(&verified_sql(server.tree(), &files.paths())?))
}

fn gtids_of(sql: &str) -> Vec<String> {
    sql.lines()
        .filter_map(|line| line.trim_start().strip_prefix("SET @@SESSION.GTID_NEXT= '"))
        .filter_map(|rest| rest.split_once('\'').map(|(gtid, _)| gtid.to_owned()))
        .filter(|gtid| gtid != "AUTOMATIC")
        .collect()
}

/// Checks that in each log file every sequence number is above the previous one, because stock replicas rely on this. `sql` is the output
/// of `mysqlbinlog`.
///
/// # Errors
/// If a number is not above the previous one; with its transaction.
pub fn numbers_rise_in_each_file(sql: &str) -> Result<()> {
    let mut last = 0;
    for line in sql.lines().filter(|line| line.starts_with('#')) {
        if line.contains("\tStart: binlog v") {
            last = 0;
        }
        let number = line.split_once("\tsequence_number=");
        let Some(number) = number.and_then(|(_, rest)| rest.split_whitespace().next()) else {
            continue;
        };
        let number: u64 = number.parse()?;
        ensure!(number > last, "{number} follows {last}: {line}");
        last = number;
    }
    ensure!(last > 0, "mysqlbinlog prints no sequence number");
    Ok(())
}

/// Checks that the primary has every acknowledged row, and that the ring's log contains each of the primary's transactions once and no
/// other transaction. In each file, sequence numbers must increase as in a source's file.
///
/// # Errors
/// If transactions are missing or duplicate; with these transactions.
pub fn assert_nothing_lost_or_doubled(
    server: &Mysqld,
    files: &LogFiles,
    written: &WrittenRows,
) -> Result<()> {
    let client = server.client();
    written.ensure_all_are_in(&client)?;

    let sql = verified_sql(server.tree(), &files.paths())?;
    numbers_rise_in_each_file(&sql)?;
    let gtids = gtids_of(&sql);
    let (mut ring, mut doubled) = (GtidSet::new(), Vec::new());
    for gtid in &gtids {
        if !ring.add(gtid.parse()?) {
            doubled.push(gtid);
        }
    }
    ensure!(
        doubled.is_empty(),
        "the ring's log holds transactions twice: {doubled:?}"
    );

    for (left, right, what) in [
        (
            "@@GLOBAL.gtid_executed".to_owned(),
            format!("'{ring}'"),
            "the primary has transactions that the ring lacks",
        ),
        (
            format!("'{ring}'"),
            "@@GLOBAL.gtid_executed".to_owned(),
            "the ring has transactions that the primary lacks",
        ),
    ] {
        let rest = client
            .sql(&format!("SELECT GTID_SUBTRACT({left}, {right})"))?
            .0
            .concat()
            .concat();
        ensure!(rest.is_empty(), "{what}: {rest}");
    }
    Ok(())
}
