//! SQL through the tree's own `mysql` client: what an operator would type, over the socket or over TCP.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bounded_run::{self, Running};
use crate::mysql_tree::MysqlTree;

/// How long a statement may take unless the caller says otherwise.
const STATEMENT_LIMIT: Duration = Duration::from_secs(60);

/// Somebody who speaks to one server. Free to clone and to hand to another thread.
#[derive(Clone, Debug)]
pub struct MysqlClient {
    tree: MysqlTree,
    login: Vec<String>,
}

/// What a statement returned: rows of columns, as text. NULL reads `NULL`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(pub Vec<Vec<String>>);

/// Statements that run in the background, for tests of commits that wait. Dropped, their client is killed (the server may finish them all the same).
#[derive(Debug)]
pub struct PendingSql(Running);

impl MysqlClient {
    /// As `root` over a socket.
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

    /// As `user` over TCP.
    #[must_use]
    pub fn over_tcp(tree: &MysqlTree, address: SocketAddr, user: &str, password: &str) -> Self {
        let login = vec![
            format!("--user={user}"),
            format!("--password={password}"),
            "--protocol=TCP".into(),
            format!("--host={}", address.ip()),
            format!("--port={}", address.port()),
            // Without TLS the password goes encrypted with the server's RSA key, which the client must be allowed to ask for.
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
    /// With the server's message, or when they take longer than a minute.
    pub fn sql(&self, statements: &str) -> Result<Rows> {
        self.sql_within(statements, STATEMENT_LIMIT)
    }

    /// As [`MysqlClient::sql`] with another limit.
    ///
    /// # Errors
    /// With the server's message, or when the limit passes.
    pub fn sql_within(&self, statements: &str, limit: Duration) -> Result<Rows> {
        let done = bounded_run::run(label(statements), self.command()?, statements.into(), limit)?;
        Ok(Rows::parse(&done.into_text(&label(statements))?))
    }

    /// Starts statements and returns at once.
    ///
    /// # Errors
    /// When the client cannot be started.
    pub fn start_sql(&self, statements: &str) -> Result<PendingSql> {
        Ok(PendingSql(Running::start(
            label(statements),
            self.command()?,
            statements.into(),
        )?))
    }

    /// The one value that a query returns.
    ///
    /// # Errors
    /// As [`MysqlClient::sql`], or when the answer is not one row of one column.
    pub fn value(&self, query: &str) -> Result<String> {
        self.sql(query)?
            .single()
            .with_context(|| format!("unexpected answer to {query}"))
    }

    /// A global variable.
    ///
    /// # Errors
    /// When the server has none of that name.
    pub fn variable(&self, name: &str) -> Result<String> {
        self.value(&format!("SELECT @@GLOBAL.{name}"))
    }

    /// A global status counter, as text.
    ///
    /// # Errors
    /// When the server has none of that name.
    pub fn status(&self, name: &str) -> Result<String> {
        let rows = self.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        rows.0
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().nth(1))
            .with_context(|| format!("no status {name}"))
    }

    /// All GTIDs that the server has executed, in its own notation without line breaks.
    ///
    /// # Errors
    /// As [`MysqlClient::sql`].
    pub fn gtid_executed(&self) -> Result<String> {
        // In batch mode the client writes the line breaks between sources as the two characters `\n`.
        Ok(self.variable("gtid_executed")?.replace("\\n", ""))
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
    /// The value of an answer of one row with one column.
    ///
    /// # Errors
    /// When it has another shape.
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
    /// Whether they have ended by now.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn is_finished(&mut self) -> Result<bool> {
        self.0.is_finished()
    }

    /// Waits for their end.
    ///
    /// # Errors
    /// With the server's message, or when the limit passes.
    pub fn finish(self, limit: Duration) -> Result<Rows> {
        Ok(Rows::parse(
            &self.0.finish(limit)?.into_text("the background SQL")?,
        ))
    }
}

/// Statements in a message: their beginning, on one line.
fn label(statements: &str) -> String {
    const LONGEST: usize = 120;
    let line = statements.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = line.chars().take(LONGEST).collect();
    format!(
        "SQL `{shown}{}`",
        if shown.len() < line.len() { "…" } else { "" }
    )
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
