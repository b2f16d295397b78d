//! Compares the outcomes reported to the clients with all servers and all logs. Clients do not write during the comparison.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::cluster::Cluster;
use testkit::mysqld::MysqlClient;
use testkit::mysqld::client::mysqlbinlog;
use testkit::wait::try_eventually;

use crate::ledger::{Contents, Ledger};
use crate::lists::History;
use crate::stage::{MADE, Stage};

/// Time limit for all servers and logs to become equal. On a busy machine, crash recovery of a killed server may need minutes.
const EQUAL_LIMIT: Duration = Duration::from_secs(180);
const SCHEMA: &str = "nemesis";
/// Server state other than table rows that must be equal after the same transactions.
const SAME_EVERYWHERE: [(&str, &str); 3] = [
    (
        "SELECT table_name, column_name, ordinal_position, column_type, column_default, is_nullable, extra \
         FROM information_schema.columns WHERE table_schema = 'nemesis' ORDER BY 1, 3",
        "columns",
    ),
    (
        "SELECT table_name, index_name, seq_in_index, column_name, non_unique FROM information_schema.statistics \
         WHERE table_schema = 'nemesis' ORDER BY 1, 2, 3",
        "indexes",
    ),
    ("XA RECOVER CONVERT XID", "prepared transactions"),
];

/// Checks all servers and logs. The error lists all differences.
pub(crate) fn audit(stage: &mut Stage, ledger: &Ledger, history: &History) -> Result<()> {
    servers_are_equal(stage)?;
    logs_are_equal(stage)?;
    let mut wrong = Vec::new();
    for member in stage.ring.databases() {
        let client = stage.ring.server(member).client();
        history.read_all(&client)?;
        let contents = contents(&client)?;
        for what in ledger.judge(&contents) {
            wrong.push(format!("{}: {what}", stage.ring.name(member)));
        }
        let trimmed = trimmed_numbers(stage, member)?;
        let acknowledged = ledger.acknowledged_of(&trimmed);
        if let Some(first) = acknowledged.first() {
            wrong.push(format!(
                "{}: {} acknowledged transactions are among what was trimmed, the first is {first}",
                stage.ring.name(member),
                acknowledged.len()
            ));
        }
    }
    wrong.extend(history.judge());
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

/// Waits until all servers have executed the same transactions, and compares their tables.
fn servers_are_equal(stage: &mut Stage) -> Result<()> {
    wait_for(
        stage,
        "the mysqlds have executed the same",
        Cluster::same_executed,
    )?;
    let compared = stage.ring.same_tables(SCHEMA);
    compared.context("equal sets of transactions")?;
    for (query, what) in SAME_EVERYWHERE {
        let members = stage.ring.databases().into_iter();
        let answers = members.map(|member| stage.ring.client(member).sql(query));
        let answers = answers.collect::<Result<Vec<_>>>()?;
        ensure!(
            answers.iter().all(|answer| *answer == answers[0]),
            "equal sets of transactions, and {what} that differ: {answers:?}"
        );
    }
    Ok(())
}

/// Waits until the log files of all members contain the same bytes.
fn logs_are_equal(stage: &mut Stage) -> Result<()> {
    wait_for(stage, "all logs are the same", |ring| {
        ring.same_logs().map(drop)
    })
}

fn wait_for(stage: &mut Stage, what: &str, look: impl Fn(&Cluster) -> Result<()>) -> Result<()> {
    let waited = try_eventually(what, EQUAL_LIMIT, || {
        stage.ring.look_after()?;
        Ok(look(&stage.ring))
    });
    waited.with_context(|| stage.ring.words())
}

fn contents(client: &MysqlClient) -> Result<Contents> {
    let numbers = |query: &str| -> Result<Vec<Vec<u64>>> {
        let rows = client.sql(query)?.0.into_iter();
        let parse = |row: Vec<String>| row.iter().map(|value| Ok(value.parse()?)).collect();
        rows.map(parse).collect()
    };
    let pairs = |query: &str| -> Result<Vec<(u64, u64)>> {
        let rows = numbers(query)?.into_iter();
        rows.map(|row| match row[..] {
            [one, two] => Ok((one, two)),
            _ => bail!("unexpected answer to {query}"),
        })
        .collect()
    };
    let pair: BTreeMap<u64, u64> = pairs("SELECT half, n FROM nemesis.pair")?
        .into_iter()
        .collect();
    let half = |half: u64| pair.get(&half).copied().context("half of the pair is gone");
    Ok(Contents {
        appended: numbers("SELECT id FROM nemesis.appended")?.concat(),
        increments: pairs("SELECT id, counter FROM nemesis.increments")?,
        counters: pairs("SELECT counter, n FROM nemesis.counters")?
            .into_iter()
            .collect(),
        pair: [half(0)?, half(1)?],
        parents: pairs(
            "SELECT p.id, COUNT(c.id) FROM nemesis.parents p \
             LEFT JOIN nemesis.children c ON c.parent = p.id GROUP BY p.id",
        )?,
        orphans: client
            .value(
                "SELECT COUNT(*) FROM nemesis.children c \
                 LEFT JOIN nemesis.parents p ON c.parent = p.id WHERE p.id IS NULL",
            )?
            .parse()?,
        made: numbers(&format!(
            "SELECT SUBSTRING(table_name, {}) FROM information_schema.tables \
             WHERE table_schema = '{SCHEMA}' AND table_name LIKE '{MADE}%'",
            MADE.len() + 1
        ))?
        .concat(),
        xa: numbers("SELECT id FROM nemesis.xa_rows")?.concat(),
    })
}

/// Returns the numbers of the client transactions in the trimmed tails of a mysqld's binlog.
fn trimmed_numbers(stage: &Stage, member: usize) -> Result<Vec<u64>> {
    let folder = stage.ring.directory(member).join("trimmed/mysqld");
    let mut numbers = Vec::new();
    for tail in tails(&folder)? {
        let tree = stage.ring.server(member).tree();
        let arguments = ["--verbose", "--base64-output=DECODE-ROWS"];
        let read = mysqlbinlog(tree, &arguments, &[&tail])?;
        // A tail's last transaction may be incomplete; mysqlbinlog still prints everything before it.
        let text = String::from_utf8_lossy(&read.stdout).into_owned();
        numbers.extend(numbers_in(&text));
    }
    Ok(numbers)
}

/// Returns the files of trimmed tails in a folder.
fn tails(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut tails = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            tails.push(path);
        }
    }
    Ok(tails)
}

/// The tables with the number of the writing transaction in their first column.
const INSERTED: [&str; 4] = [
    "`nemesis`.`appended`",
    "`nemesis`.`increments`",
    "`nemesis`.`parents`",
    "`nemesis`.`xa_rows`",
];

/// The first columns of rows inserted into the clients' tables, as `mysqlbinlog --verbose` prints them.
fn numbers_in(text: &str) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut ours = false;
    for line in text.lines() {
        if let Some(table) = line.strip_prefix("### INSERT INTO ") {
            ours = INSERTED.contains(&table.trim());
        } else if line.starts_with("### UPDATE") || line.starts_with("### DELETE") {
            ours = false;
        } else if let Some(value) = line.strip_prefix("###   @1=")
            && ours
            && let Some(Ok(number)) = value.split_whitespace().next().map(str::parse)
        {
            numbers.push(number);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_rows_that_clients_insert() {
        let text = "### UPDATE `nemesis`.`pair`\n### WHERE\n###   @1=0\n### SET\n###   @1=0\n\
                    ### INSERT INTO `nemesis`.`appended`\n### SET\n###   @1=17\n###   @2=4\n\
                    ### INSERT INTO `other`.`appended`\n### SET\n###   @1=99\n\
                    ### INSERT INTO `nemesis`.`increments`\n### SET\n###   @1=18 (18)\n";
        assert_eq!(numbers_in(text), [17, 18]);
    }
}
