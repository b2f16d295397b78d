//! A reference server with exactly the ring's transactions, applied by stock `mysqlbinlog` and
//! `mysql`.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use binlog_format::MAGIC;
use binlog_format::canonical::{stamp, stamp_payload};
use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription, PreviousGtids};
use raft_types::AppEntry;
use tempfile::TempDir;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::verified_sql;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions, TableChecksums};

use crate::ring_in_memory::MemoryRing;

pub(crate) struct Reference {
    server: Mysqld,
    /// How many of the ring's entries the reference server has applied.
    has: usize,
    folder: TempDir,
}

impl Reference {
    pub(crate) fn start() -> Result<Self> {
        let options = MysqldOptions::with_server_id(2).with_arguments([
            "--innodb-redo-log-capacity=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--sync-binlog=0",
            "--skip-networking",
        ]);
        Ok(Self {
            server: Mysqld::launch_with(&MysqlTree::require(), options)?,
            has: 0,
            folder: tempfile::tempdir()?,
        })
    }

    /// Applies the ring's new commits to the reference server, and compares both servers
    /// completely.
    pub(crate) fn equals(&mut self, ring: &MemoryRing, server: &Mysqld) -> Result<()> {
        self.catch_up(ring)?;
        let (ours, theirs) = (
            contents(&self.server.client())?,
            contents(&server.client())?,
        );
        ensure!(
            ours == theirs,
            "the reference has {ours:#?}\nthe server has {theirs:#?}"
        );
        Ok(())
    }

    fn catch_up(&mut self, ring: &MemoryRing) -> Result<()> {
        let entries = ring.entries();
        let mut file = MAGIC.to_vec();
        let built_in = FormatDescription::built_in_event();
        let mut at = stamp(&built_in, file.len() as u64, &mut file)?;
        let previous = PreviousGtids::default().encode(EventOrigin::default());
        at = stamp(&previous, at, &mut file)?;
        for entry in &entries[self.has..] {
            if let AppEntry::Transaction(payload) = entry {
                at = stamp_payload(payload.bytes(), at, &mut file)?;
            }
        }
        self.has = entries.len();
        let path = self.folder.path().join("binlog.000001");
        std::fs::write(&path, file)?;
        let sql = verified_sql(self.server.tree(), &[path])?;
        self.server.client().sql(&sql)?;
        Ok(())
    }
}

/// The visible state of a server: GTIDs, tables with their checksums, XA transactions.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    gtids: String,
    tables: BTreeMap<String, String>,
    checksums: Vec<TableChecksums>,
    prepared: Vec<Vec<String>>,
}

fn contents(client: &MysqlClient) -> Result<Contents> {
    let own = "NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')";
    let schemas = client.sql(&format!(
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name {own} ORDER BY schema_name"
    ))?;
    let columns = client.sql(&format!(
        "SELECT CONCAT(table_schema, '.', table_name), GROUP_CONCAT(CONCAT(column_name, ' ', column_key) ORDER BY ordinal_position) \
         FROM information_schema.columns WHERE table_schema {own} GROUP BY 1"
    ))?;
    let mut checksums = Vec::new();
    for schema in schemas.0.concat() {
        checksums.push(match client.table_checksums(&schema) {
            Ok(checksums) => checksums,
            Err(_) => TableChecksums::from([(schema, "no tables".to_owned())]),
        });
    }
    let mut prepared = client.sql("XA RECOVER")?.0;
    prepared.sort();
    Ok(Contents {
        gtids: client.gtid_executed()?,
        tables: columns
            .0
            .into_iter()
            .map(|row| (row[0].clone(), row[1].clone()))
            .collect(),
        checksums,
        prepared,
    })
}
