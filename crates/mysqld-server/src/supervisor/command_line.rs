//! The command line of mysqld and its data directory. The options that the ring requires come last, so they take effect.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use mysql_link::{ConnectOptions, ServerVersion};

use crate::settings::{
    LARGEST_CACHE, SemiSyncNames, TIMEOUT_MS, UNREACHABLE_ACKS, native_grants, rows_grants,
};
use crate::supervisor::decision::DataDir;

/// How mysqld is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// The program, preceded by a wrapper if there is one.
    pub command: Vec<String>,
    /// `--datadir` of mysqld.
    pub data_dir: PathBuf,
    /// `--socket` of mysqld.
    pub socket: PathBuf,
    /// The TCP port of mysqld; `None` leaves the port to mysqld's own configuration.
    pub port: Option<u16>,
    /// `--pid-file` of mysqld.
    pub pid_file: PathBuf,
    /// The error log. If the name has no extension, mysqld appends `.err`, and so does [`ServerCommand::error_log_file`].
    pub error_log: PathBuf,
    /// `mysql.extra_args` of the configuration, after the other arguments.
    pub extra_args: Vec<String>,
}

/// Options that mysqld accepts only at the start of its command line.
const FIRST: [&str; 5] = [
    "--no-defaults",
    "--defaults-file=",
    "--defaults-extra-file=",
    "--defaults-group-suffix=",
    "--login-path=",
];

impl ServerCommand {
    /// The argument that identifies a process serving this data directory.
    pub fn data_dir_argument(&self) -> String {
        format!("--datadir={}", self.data_dir.display())
    }

    /// Path of the error log.
    pub fn error_log_file(&self) -> PathBuf {
        match self.error_log.extension() {
            Some(_) => self.error_log.clone(),
            None => self.error_log.with_extension("err"),
        }
    }

    /// Program and arguments that initialise the data directory. `init_file` has statements that mysqld executes then.
    pub(crate) fn initialise_words(&self, init_file: Option<&str>) -> Vec<String> {
        let mut words = self.beginning();
        words.extend(self.rest_of_extra_args());
        words.push(INITIALISE.to_owned());
        words.extend(init_file.map(|file| format!("--init-file={file}")));
        words
    }

    /// Program and arguments that start the server.
    pub fn words(&self, version: ServerVersion) -> Vec<String> {
        let mut words = self.beginning();
        words.push(format!("--socket={}", self.socket.display()));
        words.extend(self.port.map(|port| format!("--port={port}")));
        words.push(format!("--pid-file={}", self.pid_file.display()));
        words.extend(self.rest_of_extra_args());
        words.extend(self.what_must_win(version));
        words
    }

    fn beginning(&self) -> Vec<String> {
        let mut words = self.command.clone();
        if self.first_args().next().is_none() {
            // Option files on the machine must not configure this server.
            words.push("--no-defaults".to_owned());
        }
        words.extend(self.first_args().cloned());
        words.push(self.data_dir_argument());
        words.push(format!("--log-error={}", self.error_log_file().display()));
        words
    }

    pub(super) fn first_args(&self) -> impl Iterator<Item = &String> {
        self.extra_args.iter().filter(|arg| is_first(arg))
    }

    fn rest_of_extra_args(&self) -> impl Iterator<Item = String> {
        self.extra_args.iter().filter(|arg| !is_first(arg)).cloned()
    }

    fn what_must_win(&self, version: ServerVersion) -> Vec<String> {
        let names = SemiSyncNames::of_version(version);
        let option = |variable: String, value: &str| {
            format!("--loose-{}={value}", variable.replace('_', "-"))
        };
        let cache = LARGEST_CACHE.to_string();
        let timeout = TIMEOUT_MS.to_string();
        let skip_start = match names {
            SemiSyncNames::Source => "--skip-replica-start",
            SemiSyncNames::Master => "--skip-slave-start",
        };
        vec![
            "--gtid-mode=ON".to_owned(),
            "--enforce-gtid-consistency=ON".to_owned(),
            "--sync-binlog=1".to_owned(),
            "--innodb-flush-log-at-trx-commit=1".to_owned(),
            "--binlog-error-action=ABORT_SERVER".to_owned(),
            format!("--max-binlog-cache-size={cache}"),
            format!("--max-binlog-stmt-cache-size={cache}"),
            format!("--plugin-load-add={}", names.library()),
            option(names.enabled(), "ON"),
            option(names.timeout(), &timeout),
            option(names.replica_count(), &UNREACHABLE_ACKS.to_string()),
            option(names.wait_no_replica(), "ON"),
            option(names.wait_point(), "AFTER_SYNC"),
            skip_start.to_owned(),
            // The server's own writes from earlier leaderships may return through its replica threads.
            "--replicate-same-server-id".to_owned(),
            // OFF until the primary is opened.
            "--event-scheduler=OFF".to_owned(),
            "--read-only=ON".to_owned(),
            "--super-read-only=ON".to_owned(),
        ]
    }
}

/// The argument that identifies an initialising process.
pub(crate) const INITIALISE: &str = "--initialize-insecure";

fn is_first(argument: &str) -> bool {
    FIRST.iter().any(|first| argument.starts_with(first))
}

// The data directory: its content and its initialisation. A marker file in it exists from before the initialisation until after its end. So
// an unfinished directory is recognised as the member's own, and may be wiped.

/// mysqld ignores files whose names begin with a dot when it checks whether a directory is empty.
const MARKER: &str = ".witness-initialising";

/// Returns the content of a directory.
///
/// # Errors
/// When the directory cannot be listed.
pub(super) fn look(path: &Path) -> io::Result<DataDir> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DataDir::Empty),
        Err(error) => return Err(error),
    };
    let mut found = DataDir::Empty;
    for entry in entries {
        let name = entry?.file_name();
        if name == MARKER {
            return Ok(DataDir::HalfInitialised);
        }
        if !is_ignored(&name) {
            found = DataDir::Ready;
        }
    }
    Ok(found)
}

fn is_ignored(name: &std::ffi::OsStr) -> bool {
    name == "lost+found" || name.as_encoded_bytes().starts_with(b".")
}

/// Renames a data directory within its parent, and creates an empty directory with the same permissions in its place. Returns the new name
/// of the old directory.
///
/// # Errors
/// The file system's error, for example for a mount point or a parent directory without write permission.
pub(super) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".unusable-{}", now.unwrap_or_default().as_secs()));
    let kept = PathBuf::from(name);
    let permissions = fs::metadata(path)?.permissions();
    fs::rename(path, &kept)?;
    fs::create_dir(path)?;
    fs::set_permissions(path, permissions)?;
    if let Some(above) = path.parent() {
        File::open(above)?.sync_all()?;
    }
    Ok(kept)
}

/// Marks a directory as being initialised, and removes files left by an earlier attempt.
///
/// # Errors
/// When the removal fails, or the directory has files that are not from such an attempt.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    match look(path)? {
        DataDir::Ready => {
            return Err(io::Error::other(
                "there is something in the data directory: it is not initialised",
            ));
        }
        DataDir::Empty => {
            fs::create_dir_all(path)?;
            File::create(path.join(MARKER))?.sync_all()?;
            File::open(path)?.sync_all()?;
        }
        DataDir::HalfInitialised => {}
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if is_ignored(&entry.file_name()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes the marker, so the directory counts as initialised.
///
/// # Errors
/// When the marker cannot be removed.
pub(super) fn finish(path: &Path) -> io::Result<()> {
    fs::remove_file(path.join(MARKER))?;
    File::open(path)?.sync_all()
}

/// Writes a file with the statements that create the member's account, readable only by its owner. Returns `None` if the account is one
/// that any fresh server has.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_account(
    file: &Path,
    account: &ConnectOptions,
    rights: AccountRights,
) -> io::Result<bool> {
    if account.user == "root" {
        return Ok(false);
    }
    let mut out = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    let statements = account_statements(&account.user, &account.password.reveal(), rights);
    out.write_all(statements.as_bytes())?;
    out.sync_all()?;
    Ok(true)
}

/// The privileges of the member's account in a new server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountRights {
    /// All privileges. The member applies every statement of the ring's log, which may be any statement of an administrator, including
    /// GRANT.
    All,
    /// Only the privileges for the member's own actions; mysqld's own threads apply.
    Native,
}

fn account_statements(user: &str, password: &str, rights: AccountRights) -> String {
    // `log_bin` among the arguments also enables the binlog during the initialisation, and the ring does not have these transactions.
    let mut statements = "SET SESSION sql_log_bin = 0;\n".to_owned();
    for host in ["localhost", "127.0.0.1", "::1"] {
        let account = format!("{}@'{host}'", literal(user));
        statements.push_str(&format!(
            "CREATE USER {account} IDENTIFIED BY {} PASSWORD EXPIRE NEVER;\n",
            literal(password)
        ));
        let grants = match rights {
            AccountRights::All => rows_grants(&account),
            AccountRights::Native => native_grants(&account),
        };
        statements.extend(grants.into_iter().map(|grant| grant + ";\n"));
    }
    statements
}

/// A string literal on one line, for any content.
fn literal(text: &str) -> String {
    mysql_link::literal(text).replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(extra_args: &[&str]) -> ServerCommand {
        ServerCommand {
            command: vec!["ld.so".to_owned(), "mysqld".to_owned()],
            data_dir: "/data".into(),
            socket: "/run/sock".into(),
            port: Some(3307),
            pid_file: "/run/pid".into(),
            error_log: "/run/log".into(),
            extra_args: extra_args.iter().map(|arg| (*arg).to_owned()).collect(),
        }
    }

    const VERSION: ServerVersion = ServerVersion::new(9, 7, 4);

    #[test]
    fn order_decides_who_wins() {
        let words = command(&[
            "--super-read-only=OFF",
            "--defaults-file=/my.cnf",
            "--port=1",
        ])
        .words(VERSION);
        assert_eq!(words[..3], ["ld.so", "mysqld", "--defaults-file=/my.cnf"]);
        let place = |word: &str| words.iter().position(|found| found == word).unwrap();
        assert!(place("--port=3307") < place("--port=1"));
        assert!(place("--super-read-only=OFF") < place("--super-read-only=ON"));
        assert!(!words.contains(&"--no-defaults".to_owned()));
        assert_eq!(command(&[]).words(VERSION)[2], "--no-defaults");
    }

    #[test]
    fn names_follow_the_version() {
        let words = command(&[]).words(ServerVersion::new(8, 0, 25));
        assert!(words.contains(&"--plugin-load-add=semisync_master.so".to_owned()));
        assert!(
            words.contains(&"--loose-rpl-semi-sync-master-wait-for-slave-count=1000".to_owned())
        );
        assert!(words.contains(&"--skip-slave-start".to_owned()));
        assert!(words.contains(&"--log-error=/run/log.err".to_owned()));
        let words = command(&[]).words(ServerVersion::new(26, 1, 0));
        assert!(words.contains(&"--skip-replica-start".to_owned()));
        assert!(words.contains(&"--plugin-load-add=semisync_source.so".to_owned()));
        assert!(words.contains(&"--loose-rpl-semi-sync-source-wait-point=AFTER_SYNC".to_owned()));
    }

    #[test]
    fn initialising_does_not_start_a_server() {
        let words = command(&["--user=root"]).initialise_words(Some("/run/init.sql"));
        assert!(
            words.contains(&"--user=root".to_owned())
                && words.contains(&"--initialize-insecure".to_owned())
        );
        assert_eq!(
            words.last().map(String::as_str),
            Some("--init-file=/run/init.sql")
        );
        assert!(
            !words
                .iter()
                .any(|word| word.contains("read-only") || word.contains("--socket"))
        );
    }
}

#[cfg(test)]
mod data_dir_tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_never_wiped() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        assert_eq!(look(&path).unwrap(), DataDir::Empty);
        fs::create_dir(&path).unwrap();
        fs::create_dir(path.join("lost+found")).unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::Empty);
        fs::write(path.join("ibdata1"), "precious").unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::Ready);
        assert!(prepare(&path).is_err());
        assert_eq!(
            fs::read_to_string(path.join("ibdata1")).unwrap(),
            "precious"
        );
    }

    #[test]
    fn half_an_initialisation_is_wiped() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        prepare(&path).unwrap();
        fs::write(path.join("ibdata1"), "half").unwrap();
        fs::create_dir(path.join("mysql")).unwrap();
        fs::write(path.join("mysql/x"), "half").unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::HalfInitialised);
        prepare(&path).unwrap();
        assert!(!path.join("ibdata1").exists() && !path.join("mysql").exists());
        fs::write(path.join("ibdata1"), "whole").unwrap();
        finish(&path).unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::Ready);
    }

    #[test]
    fn literals_are_safe() {
        assert_eq!(literal("a'b\\c\nd"), "'a''b\\\\c\\nd'");
        let statements = account_statements("w", "p'; DROP USER root; --", AccountRights::All);
        // With `default_password_lifetime` it would expire on all members at the same time.
        assert!(statements.contains("BY 'p''; DROP USER root; --' PASSWORD EXPIRE NEVER;"));
        // Three hosts, and no statement in a binlog.
        assert_eq!(statements.lines().count(), 1 + 3 * 3);
        assert_eq!(statements.matches("GRANT PROXY ON ''@''").count(), 3);
        assert!(statements.starts_with("SET SESSION sql_log_bin = 0;\n"));
        let native = account_statements("w", "p", AccountRights::Native);
        assert!(!native.contains("ALL PRIVILEGES") && native.contains("CLONE_ADMIN"));
    }
}
