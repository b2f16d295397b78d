//! MySQL's client programs: SQL through `mysql`, the contents of a server, and `mysqlbinlog`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::bounded_run;
use crate::bounded_run::{Finished, Running};
use crate::mysql_tree::MysqlTree;
use crate::mysqld::Mysqld;
use crate::wait::eventually;

/// Default limit for statements.
const STATEMENT_LIMIT: Duration = Duration::from_secs(60);

/// A client of one server. Cheap to clone and `Send`.
#[derive(Clone, Debug)]
pub struct MysqlClient {
    tree: MysqlTree,
    login: Vec<String>,
}

/// The result of a statement: rows of columns, as text. A NULL is the text `NULL`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(pub Vec<Vec<String>>);

/// Statements that run in the background, for tests of waiting commits. Dropping this kills the client; the server may still execute
/// the statements.
#[derive(Debug)]
pub struct PendingSql(Running);

impl MysqlClient {
    /// Creates a client that connects as `root` over a socket.
    #[must_use]
    pub fn over_socket(tree: &MysqlTree, socket: &Path) -> Self {
        Self {
            tree: tree.clone(),
            login: vec![
                "--user=root".into(),
                format!("--socket={}", socket.display()),
            ],
        }
    }

    /// Creates a client that connects as `user` over TCP.
    #[must_use]
    pub fn over_tcp(tree: &MysqlTree, address: SocketAddr, user: &str, password: &str) -> Self {
        let login = vec![
            format!("--user={user}"),
            format!("--password={password}"),
            "--protocol=TCP".into(),
            format!("--host={}", address.ip()),
            format!("--port={}", address.port()),
            // Without TLS, the client encrypts the password with the server's RSA key. This option allows it to request the key.
            "--get-server-public-key".into(),
        ];
        Self {
            tree: tree.clone(),
            login,
        }
    }

    /// Runs statements, separated by semicolons, and returns the rows of all of them.
    ///
    /// # Errors
    /// If a statement fails (with the server's message), or if the statements take longer than a minute.
    pub fn sql(&self, statements: &str) -> Result<Rows> {
        self.sql_within(statements, STATEMENT_LIMIT)
    }

    /// As [`MysqlClient::sql`] with another limit.
    ///
    /// # Errors
    /// If a statement fails (with the server's message), or if the limit passes.
    pub fn sql_within(&self, statements: &str, limit: Duration) -> Result<Rows> {
        let done = bounded_run::run(label(statements), self.command()?, statements.into(), limit)?;
        Ok(Rows::parse(&done.into_text(&label(statements))?))
    }

    /// Starts statements and returns immediately.
    ///
    /// # Errors
    /// If the client cannot be started.
    pub fn start_sql(&self, statements: &str) -> Result<PendingSql> {
        Ok(PendingSql(Running::start(
            label(statements),
            self.command()?,
            statements.into(),
        )?))
    }

    /// Starts a client. While the client runs, `feed` writes its statements. The client continues after statements that the server
    /// refuses.
    pub(super) fn fed_by(&self, feed: impl FnOnce(ChildStdin) + Send + 'static) -> Result<Running> {
        let mut command = self.command()?;
        command.args(["--force", "--unbuffered"]);
        Running::start_fed("a client at a pace", command, feed)
    }

    /// Returns the single value of a query's result.
    ///
    /// # Errors
    /// As [`MysqlClient::sql`], or if the result is not one row of one column.
    pub fn value(&self, query: &str) -> Result<String> {
        self.sql(query)?
            .single()
            .with_context(|| format!("unexpected answer to {query}"))
    }

    /// Returns a global variable.
    ///
    /// # Errors
    /// If the server does not have this variable.
    pub fn variable(&self, name: &str) -> Result<String> {
        self.value(&format!("SELECT @@GLOBAL.{name}"))
    }

    /// Returns a global status counter, as text.
    ///
    /// # Errors
    /// If the server does not have this counter.
    pub fn status(&self, name: &str) -> Result<String> {
        let rows = self.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        rows.0
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().nth(1))
            .with_context(|| format!("no status {name}"))
    }

    /// Returns all GTIDs that the server has executed, in the server's notation without line breaks.
    ///
    /// # Errors
    /// As [`MysqlClient::sql`].
    pub fn gtid_executed(&self) -> Result<String> {
        // In batch mode the client replaces each line break between sources by the two characters `\n`.
        Ok(self.variable("gtid_executed")?.replace("\\n", ""))
    }

    /// Returns the command line of a client that sends its standard input to this server, without further arguments.
    ///
    /// # Errors
    /// If the tree has no client program.
    pub fn command_line(&self) -> Result<Vec<OsString>> {
        let command = self.command()?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Ok(words.map(OsString::from).collect())
    }

    fn command(&self) -> Result<Command> {
        let mut command = self.tree.optional("mysql", self.tree.mysql.as_ref())?;
        command.arg("--no-defaults").args(&self.login).args([
            "--batch",
            "--skip-column-names",
            "--default-character-set=utf8mb4",
        ]);
        Ok(command)
    }
}

impl Rows {
    /// Returns the value of a result with one row and one column.
    ///
    /// # Errors
    /// If the result has another shape.
    pub fn single(&self) -> Result<String> {
        ensure!(
            self.0.len() == 1 && self.0[0].len() == 1,
            "one value was expected, not {:?}",
            self.0
        );
        Ok(self.0[0][0].clone())
    }

    fn parse(text: &str) -> Self {
        Self(
            text.lines()
                .map(|line| line.split('\t').map(str::to_owned).collect())
                .collect(),
        )
    }
}

impl PendingSql {
    /// True if the client has ended.
    ///
    /// # Errors
    /// If waiting for the client fails.
    pub fn is_finished(&mut self) -> Result<bool> {
        self.0.is_finished()
    }

    /// Waits until the client has ended, and returns the result.
    ///
    /// # Errors
    /// If a statement fails (with the server's message), or if the limit passes.
    pub fn finish(self, limit: Duration) -> Result<Rows> {
        Ok(Rows::parse(
            &self.0.finish(limit)?.into_text("the background SQL")?,
        ))
    }
}

/// Returns a short form of statements for messages: their beginning, on one line.
fn label(statements: &str) -> String {
    const LONGEST: usize = 120;
    let line = statements.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = line.chars().take(LONGEST).collect();
    format!(
        "SQL `{shown}{}`",
        if shown.len() < line.len() { "…" } else { "" }
    )
}

// The contents of a server, for comparing two servers.

/// `CHECKSUM TABLE` of tables, by `schema.table`.
pub type TableChecksums = BTreeMap<String, String>;

/// The time limit is long, because `CHECKSUM TABLE` reads every row.
const CHECKSUM_LIMIT: Duration = Duration::from_secs(300);

impl MysqlClient {
    /// Returns the checksums of all tables of a schema. They depend only on the rows and their format: if two servers of one version
    /// have equal tables, the checksums are equal.
    ///
    /// # Errors
    /// If the schema has no table, or a table cannot be read.
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
    /// If the server has not executed them within `limit`; with the missing GTIDs.
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
    /// Returns the server's binlog files, oldest first, as its index lists them.
    ///
    /// # Errors
    /// If the index cannot be read.
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

// The stock `mysqlbinlog`, for the binlog files of a server or a ring member.

const READ_LIMIT: Duration = Duration::from_secs(300);

/// Runs `mysqlbinlog` with `arguments` on `files`, which it reads as one stream in this order. Returns the result, even after a
/// failure.
///
/// # Errors
/// If the tree has no `mysqlbinlog`, or it does not end in time.
pub fn mysqlbinlog<P: AsRef<Path>>(
    tree: &MysqlTree,
    arguments: &[&str],
    files: &[P],
) -> Result<Finished> {
    let mut command = tree.optional("mysqlbinlog", tree.mysqlbinlog.as_ref())?;
    command.arg("--no-defaults").args(arguments);
    command.args(files.iter().map(AsRef::as_ref));
    bounded_run::run("mysqlbinlog", command, Vec::new(), READ_LIMIT)
}

/// Reads `files`, verifies every checksum, and returns their SQL for the `mysql` client.
///
/// # Errors
/// If mysqlbinlog does not accept a file.
pub fn verified_sql<P: AsRef<Path>>(tree: &MysqlTree, files: &[P]) -> Result<String> {
    let done = mysqlbinlog(tree, &["--verify-binlog-checksum"], files)?;
    // mysqlbinlog only warns about some kinds of damage. Here they are errors.
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    anyhow::ensure!(!said.contains("ERROR"), "mysqlbinlog: {}", said.trim());
    done.into_text("mysqlbinlog")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_split_at_tabs() {
        let rows = Rows::parse("1\ta\n2\t\n");
        assert_eq!(rows.0, [["1", "a"], ["2", ""]]);
        assert!(rows.single().is_err());
        assert_eq!(Rows::parse("x\n").single().unwrap(), "x");
        assert!(Rows::parse("").single().is_err());
    }

    #[test]
    fn long_statements_are_shortened_in_messages() {
        assert_eq!(label("SELECT\n  1"), "SQL `SELECT 1`");
        assert!(label(&"é".repeat(500)).ends_with("…`"));
    }
}
