//! What a server holds, for comparing two of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{MysqlClient, Mysqld};
use crate::wait::eventually;

/// `CHECKSUM TABLE` of tables, by `schema.table`.
pub type TableChecksums = BTreeMap<String, String>;

/// `CHECKSUM TABLE` reads every row.
const CHECKSUM_LIMIT: Duration = Duration::from_secs(300);

impl MysqlClient {
    /// The checksums of all tables of a schema. They depend on the rows and their format alone: equal tables of two servers of
    /// one version have equal ones.
    ///
    /// # Errors
    /// When the schema has no table, or a table cannot be read.
    pub fn table_checksums(&self, schema: &str) -> Result<TableChecksums> {
        let tables = self.sql(&format!(
            "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables \
             WHERE table_schema = '{schema}' AND table_type = 'BASE TABLE'"
        ))?;
        ensure!(
            !tables.0.is_empty(),
            "schema {schema} has no table to compare"
        );
        let names = tables.0.concat().join(", ");
        let rows = self.sql_within(&format!("CHECKSUM TABLE {names} EXTENDED"), CHECKSUM_LIMIT)?;
        rows.0
            .into_iter()
            .map(|row| match <[String; 2]>::try_from(row) {
                Ok([table, checksum]) if checksum != "NULL" => Ok((table, checksum)),
                Ok([table, _]) => bail!("{table} cannot be read"),
                Err(row) => bail!("unexpected answer to CHECKSUM TABLE: {row:?}"),
            })
            .collect()
    }

    /// Waits until this server has executed all of `gtids`.
    ///
    /// # Errors
    /// When it has not within `limit`, with what is missing.
    pub fn wait_for_gtids(&self, gtids: &str, limit: Duration) -> Result<()> {
        let query = format!("SELECT GTID_SUBTRACT('{gtids}', @@GLOBAL.gtid_executed)");
        eventually("every transaction is executed", limit, || {
            let missing = self.sql(&query)?.0.concat().concat();
            ensure!(missing.is_empty(), "{missing} are missing");
            Ok(())
        })
    }
}

impl Mysqld {
    /// Its binlog files, oldest first, as its index lists them.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn binlog_files(&self) -> Result<Vec<PathBuf>> {
        let index = self.data_dir().join("binlog.index");
        let text = fs::read_to_string(&index)
            .with_context(|| format!("cannot read {}", index.display()))?;
        Ok(text
            .lines()
            .map(|line| self.data_dir().join(line))
            .collect())
    }
}
