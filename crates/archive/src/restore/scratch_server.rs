//! A mysqld that runs on a data directory during a restore. Only this program can connect to it, and it writes no binlog.
//!
//! An init file with statements creates its account before mysqld accepts connections, so no password of the restored data is
//! needed. The account is dropped before the stop. Replication channels, events and persisted variables in the data stay inactive.
//! At the stop, the channels are removed together with their passwords, and one-time events with a past time are disabled.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use applier::events::{disable_what_is_over, events_that_are_over};
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, Row};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use uuid::Uuid;

const USER: &str = "witness_restore";
/// Interval between checks whether mysqld accepts connections.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Time limit of a clean stop, in which mysqld flushes all its memory.
const STOP_LIMIT: Duration = Duration::from_secs(3600);
/// Number of bytes from the error log's end that a message shows.
const SHOWN_BYTES: u64 = 4096;

/// The log message for a disabled one-time event.
const EVENT_DISABLED: &str = "an event that was to run once, at a time that is over, is disabled in the restored server: its \
     primary ran it at that time, if there was one. If what it did then is not in what was restored, run it by hand";

/// The mysqld to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProgram {
    /// The program and its arguments, preceded by a wrapper command, if any.
    pub command: Vec<String>,
    /// Further options, such as `--innodb-buffer-pool-size=8G`; `--defaults-file=…` must be first, if used.
    pub options: Vec<String>,
}

/// Why a restored server fails.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A file of the server cannot be written or read.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// The server ended unexpectedly, or does not start.
    #[error("mysqld {what}; the end of {log}: {said}", log = .log.display())]
    Ended {
        /// The failure, as text.
        what: String,
        /// The server's error log.
        log: PathBuf,
        /// The end of the error log.
        said: String,
    },
    /// The server refuses a statement.
    #[error("mysqld refuses `{0}`: {1}")]
    Refused(String, Box<LinkError>),
    /// The server reports an invalid GTID set.
    #[error("mysqld reports an invalid gtid_executed: `{0}`")]
    NoGtids(String),
}

/// A running mysqld; it is killed on drop.
#[derive(Debug)]
pub struct ScratchServer {
    child: Child,
    /// Options to connect to the server.
    pub connect: ConnectOptions,
    error_log: PathBuf,
    /// Contains the server's socket, its pid file and the statements for its account.
    _home: TempDir,
}

impl ScratchServer {
    /// Starts mysqld, and waits until it accepts connections. The wait has no time limit while mysqld runs, because it may have to recover
    /// first.
    ///
    /// # Errors
    /// When mysqld does not start; its error log is kept.
    pub async fn start(
        program: &ServerProgram,
        data_dir: &Path,
        error_log: &Path,
    ) -> Result<Self, ServerError> {
        let home = tempfile::Builder::new().prefix("restore-").tempdir();
        let home = home.map_err(failed("cannot make a folder for a socket"))?;
        let password = format!("Aa1-{}", Uuid::new_v4().simple());
        let statements = home.path().join("account.sql");
        write_privately(&statements, &account(&password)).map_err(failed(statements.display()))?;
        let socket = home.path().join("mysqld.sock");
        let words = words(program, data_dir, error_log, home.path());
        let log = File::options().create(true).append(true).open(error_log);
        let log = log.map_err(failed(error_log.display()))?;
        let errors = log.try_clone().map_err(failed(error_log.display()))?;
        let child = Command::new(&words[0])
            .args(&words[1..])
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            // A Ctrl-C at the terminal must reach only this program, not mysqld.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed(format!("cannot start {}", words[0])))?;
        let connect = ConnectOptions::new(Endpoint::unix(socket), USER, password.as_str());
        let mut server = Self {
            child,
            connect,
            error_log: error_log.to_owned(),
            _home: home,
        };
        server.answers().await?;
        // mysqld has executed the statements.
        fs::remove_file(&statements).map_err(failed(statements.display()))?;
        Ok(server)
    }

    /// The transactions that the server has executed.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn executed(&self) -> Result<GtidSet, ServerError> {
        let told = self.ask("SELECT @@GLOBAL.gtid_executed").await?;
        let text = told.first().and_then(|row| row.text_at(0));
        let text = text.unwrap_or_default().replace('\n', "");
        text.parse().map_err(|_| ServerError::NoGtids(text))
    }

    /// The problems of the server's tables: every result of `CHECK TABLE` other than OK. Calls `seen` after each table with the number of
    /// checked tables and the number of all tables.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn check_tables(
        &self,
        mut seen: impl FnMut(u64, u64),
    ) -> Result<Vec<String>, ServerError> {
        let tables = self
            .ask(
                "SELECT CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`') \
                 FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
                 AND table_schema NOT IN ('information_schema', 'performance_schema', 'sys') ORDER BY 1",
            )
            .await?;
        let tables: Vec<&str> = tables.iter().filter_map(|row| row.text_at(0)).collect();
        let mut wrong = Vec::new();
        for (number, table) in (1..).zip(&tables) {
            for row in self.ask(&format!("CHECK TABLE {table}")).await? {
                let (kind, said) = (row.text_at(2), row.text_at(3).unwrap_or_default());
                // A storage engine without checks reports a note.
                if !matches!(kind, Some("note" | "status")) || said == "Corrupt" {
                    wrong.push(format!("{table}: {said}"));
                }
            }
            seen(number, tables.len() as u64);
        }
        Ok(wrong)
    }

    /// Executes a statement without a time limit.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn ask(&self, statement: &str) -> Result<Vec<Row>, ServerError> {
        const LIMIT: Duration = Duration::from_secs(24 * 3600);
        let mut connect = self.connect.clone();
        connect.timeouts.statement = LIMIT;
        let mut connection = Connection::open_with_own_settings(&connect)
            .await
            .map_err(refused(statement))?;
        let told = connection.query(statement).await;
        let told = told.map_err(refused(statement))?;
        connection.close().await;
        Ok(told.rows)
    }

    /// Removes the replication channels in the data, disables events that the scheduler would otherwise run a second time, and drops this
    /// program's account. Then shuts the server down cleanly, so that its files are complete and durable.
    ///
    /// # Errors
    /// When the server does not stop, or does not stop cleanly.
    pub async fn stop(mut self) -> Result<(), ServerError> {
        // With its replication channels, a former follower would fetch all transactions after the restored point at its next normal start.
        self.ask("RESET REPLICA ALL").await?;
        // The session keeps its privileges after the account is dropped.
        let opened = Connection::open_with_own_settings(&self.connect).await;
        let mut connection = opened.map_err(refused("a connection"))?;
        let over = events_that_are_over(&mut connection).await;
        let over = over.map_err(refused("SELECT … FROM information_schema.events"))?;
        let disabled = disable_what_is_over(&mut connection, &over, EVENT_DISABLED).await;
        disabled.map_err(refused("ALTER EVENT"))?;
        let drop = format!("DROP USER '{USER}'@'localhost'");
        let dropped = connection.execute(&drop).await;
        dropped.map_err(refused("DROP USER"))?;
        let stopped = connection.execute("SHUTDOWN").await;
        stopped.map_err(refused("SHUTDOWN"))?;
        match tokio::time::timeout(STOP_LIMIT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(self.ended(format!("stopped with {status}"))),
            Ok(Err(source)) => Err(failed("cannot wait for mysqld")(source)),
            Err(_) => Err(self.ended(format!("does not stop within {STOP_LIMIT:?}"))),
        }
    }

    async fn answers(&mut self) -> Result<(), ServerError> {
        loop {
            let ended = self.child.try_wait();
            if let Some(status) = ended.map_err(failed("cannot wait for mysqld"))? {
                return Err(self.ended(format!("ended while it started ({status})")));
            }
            if let Ok(connection) = Connection::open_with_own_settings(&self.connect).await {
                connection.close().await;
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn ended(&self, what: String) -> ServerError {
        ServerError::Ended {
            what,
            log: self.error_log.clone(),
            said: end_of(&self.error_log),
        }
    }
}

fn failed(what: impl ToString) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.to_string();
    move |source| ServerError::Io(what, source)
}

fn refused(statement: &str) -> impl FnOnce(LinkError) -> ServerError {
    let statement = statement.to_owned();
    move |source| ServerError::Refused(statement, Box::new(source))
}

/// The statements that create the account; one per line, as mysqld requires.
fn account(password: &str) -> String {
    format!(
        "DROP USER IF EXISTS '{USER}'@'localhost';\n\
         CREATE USER '{USER}'@'localhost' IDENTIFIED BY '{password}';\n\
         GRANT ALL ON *.* TO '{USER}'@'localhost' WITH GRANT OPTION;\n\
         GRANT PROXY ON ''@'' TO '{USER}'@'localhost' WITH GRANT OPTION;\n"
    )
}

fn words(program: &ServerProgram, data_dir: &Path, error_log: &Path, home: &Path) -> Vec<String> {
    let mut words = program.command.clone();
    let (first, rest): (Vec<_>, Vec<_>) = program
        .options
        .iter()
        .cloned()
        .partition(|option| option.starts_with("--defaults-") || option == "--no-defaults");
    if first.is_empty() {
        // Option files on this host may be those of a running server.
        words.push("--no-defaults".to_owned());
    }
    words.extend(first);
    words.extend(rest);
    // mysqld uses the last option of a name.
    words.extend([
        format!("--datadir={}", data_dir.display()),
        format!("--log-error={}", error_log.display()),
        format!("--socket={}", home.join("mysqld.sock").display()),
        format!("--pid-file={}", home.join("mysqld.pid").display()),
        format!("--init-file={}", home.join("account.sql").display()),
    ]);
    words.extend(
        [
            "--skip-networking",
            "--loose-mysqlx=OFF",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--skip-log-bin",
            "--skip-replica-start",
            "--event-scheduler=OFF",
            "--persisted-globals-load=OFF",
            "--read-only=OFF",
            "--super-read-only=OFF",
            // MySQL packages set this option to a directory that may not exist on the restoring host.
            "--secure-file-priv=NULL",
            // Nothing is acknowledged to a client: after a crash, the restore starts from the beginning.
            "--innodb-flush-log-at-trx-commit=0",
        ]
        .map(str::to_owned),
    );
    words
}

fn write_privately(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// The end of a text file, as one line.
fn end_of(path: &Path) -> String {
    let mut end = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_BYTES)))?;
        file.read_to_end(&mut end)
    });
    // The log may not exist.
    drop(read);
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_options_come_last_and_option_files_first() {
        let program = ServerProgram {
            command: vec!["mysqld".to_owned()],
            options: vec![
                "--log-bin=other".to_owned(),
                "--defaults-file=/etc/restore.cnf".to_owned(),
            ],
        };
        let words = words(
            &program,
            Path::new("/restored"),
            Path::new("/restored.err"),
            Path::new("/tmp/x"),
        );
        assert_eq!(words[1], "--defaults-file=/etc/restore.cnf");
        assert_eq!(words[2], "--log-bin=other");
        let place = |word: &str| words.iter().position(|found| found == word).unwrap();
        assert!(place("--skip-log-bin") > place("--log-bin=other"));
        assert!(words.contains(&"--datadir=/restored".to_owned()));
        let alone = ServerProgram {
            options: Vec::new(),
            ..program
        };
        let words = super::words(
            &alone,
            Path::new("/restored"),
            Path::new("/restored.err"),
            Path::new("/tmp/x"),
        );
        assert_eq!(words[1], "--no-defaults");
    }
}
