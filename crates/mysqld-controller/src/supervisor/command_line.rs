//! The command line of mysqld, pure. What the wait for the ring depends on comes last, where it wins.

use std::path::PathBuf;

use mysql_link::ServerVersion;

use crate::settings::{SemiSyncNames, TIMEOUT_MS};

/// What mysqld is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// The program, and before it whatever wraps it.
    pub command: Vec<String>,
    /// Its data directory.
    pub data_dir: PathBuf,
    /// Its unix socket.
    pub socket: PathBuf,
    /// Its TCP port; `None` leaves that to its own configuration.
    pub port: Option<u16>,
    /// Its pid file.
    pub pid_file: PathBuf,
    /// Its error log. (mysqld appends `.err` to a name without an extension: then so does
    /// [`ServerCommand::error_log_file`].)
    pub error_log: PathBuf,
    /// The operator's own arguments.
    pub extra_args: Vec<String>,
    /// The largest transaction cache, in bytes.
    pub max_cache_bytes: u64,
}

/// Options that mysqld takes only as its first ones.
const FIRST: [&str; 5] = [
    "--no-defaults",
    "--defaults-file=",
    "--defaults-extra-file=",
    "--defaults-group-suffix=",
    "--login-path=",
];

impl ServerCommand {
    /// The argument by which a process is known to serve this data directory.
    pub fn data_dir_argument(&self) -> String {
        format!("--datadir={}", self.data_dir.display())
    }

    /// Where the error log is written.
    pub fn error_log_file(&self) -> PathBuf {
        match self.error_log.extension() {
            Some(_) => self.error_log.clone(),
            None => self.error_log.with_extension("err"),
        }
    }

    /// Program and arguments that ask for the version.
    pub(crate) fn version_words(&self) -> Vec<String> {
        let mut words = self.command.clone();
        words.extend(["--no-defaults".to_owned(), "--version".to_owned()]);
        words
    }

    /// Program and arguments that print the options of its option files; `None` where it reads none.
    pub(crate) fn print_options_words(&self) -> Option<Vec<String>> {
        let first = || self.extra_args.iter().filter(|arg| is_first(arg));
        if first().all(|arg| arg == "--no-defaults") {
            return None;
        }
        let mut words = self.command.clone();
        words.extend(first().cloned());
        words.push("--print-defaults".to_owned());
        Some(words)
    }

    /// Program and arguments that initialise the data directory; `init_file` holds statements to run in it.
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
        let first: Vec<_> = self
            .extra_args
            .iter()
            .filter(|arg| is_first(arg))
            .cloned()
            .collect();
        if first.is_empty() {
            // Files that happen to lie on the machine must not decide over this server.
            words.push("--no-defaults".to_owned());
        }
        words.extend(first);
        words.push(self.data_dir_argument());
        words.push(format!("--log-error={}", self.error_log_file().display()));
        words
    }

    fn rest_of_extra_args(&self) -> impl Iterator<Item = String> {
        self.extra_args.iter().filter(|arg| !is_first(arg)).cloned()
    }

    fn what_must_win(&self, version: ServerVersion) -> Vec<String> {
        let names = SemiSyncNames::of_version(version);
        let option = |variable: String, value: &str| {
            format!("--loose-{}={value}", variable.replace('_', "-"))
        };
        let cache = self.max_cache_bytes.to_string();
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
            option(names.replica_count(), "1"),
            option(names.wait_no_replica(), "ON"),
            option(names.wait_point(), "AFTER_SYNC"),
            skip_start.to_owned(),
            // What it wrote itself in earlier leaderships may come back to it through its own replica threads.
            "--replicate-same-server-id".to_owned(),
            // Until the primary is opened.
            "--event-scheduler=OFF".to_owned(),
            "--read-only=ON".to_owned(),
            "--super-read-only=ON".to_owned(),
        ]
    }
}

/// The argument by which an initialising process is known.
pub(crate) const INITIALISE: &str = "--initialize-insecure";

fn is_first(argument: &str) -> bool {
    FIRST.iter().any(|first| argument.starts_with(first))
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
            max_cache_bytes: 4096,
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
        assert!(words.contains(&"--loose-rpl-semi-sync-master-wait-for-slave-count=1".to_owned()));
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
