//! The mysqld of the demonstration: its location and its options.

use std::env;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mysql_link::{ConnectOptions, Endpoint, ServerVersion, VersionSupport, version_support};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;
use toml::Value;

use crate::terminal::{Attempt, Exit, Failure};

/// Options of mysqld: it has no network port, and uses little memory.
const OPTIONS: [&str; 5] = [
    "--skip-networking",
    "--mysqlx=OFF",
    "--secure-file-priv=",
    "--innodb-buffer-pool-size=64M",
    "--innodb-redo-log-capacity=32M",
];

const KILL_LIMIT: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// A mysqld that a member starts. It survives a crash of its member. It is killed when this value is dropped.
pub(crate) struct Mysqld {
    /// The value of `mysql.mysqld` in the member's configuration.
    command: Vec<String>,
    /// The options for the directories of an unpacked server.
    directories: Vec<String>,
    pub(crate) version: ServerVersion,
    data_dir: PathBuf,
    /// A directory with a short path, because the path of a socket may have at most 107 bytes.
    socket_dir: TempDir,
}

impl Mysqld {
    /// Finds a mysqld: the one that `$MYSQLD` names, the one on the PATH, or the one that `cargo xtask mysql` has
    /// unpacked into the current directory, in this order. Its data will be in the directory of `db-1`.
    ///
    /// # Errors
    /// Exit 4 if there is no mysqld, or no member can use its version.
    pub(crate) fn find(demo_dir: &Path) -> Attempt<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut on_path = env::split_paths(&path).map(|folder| folder.join("mysqld"));
        let (command, directories) = if let Ok(named) = env::var("MYSQLD") {
            (vec![named], Vec::new())
        } else if let Some(mysqld) = on_path.find(|file| file.is_file()) {
            (vec![mysqld.display().to_string()], Vec::new())
        } else {
            unpacked(Path::new(".mysql"))?
        };
        let version = version_of(&command).map_err(|failure| {
            let named = env::var("MYSQLD").map_or("", |_| "$MYSQLD names no usable mysqld: ");
            unusable(format!("{named}{}", failure.what))
        })?;
        Ok(Self {
            command,
            directories,
            version,
            data_dir: demo_dir.join("db-1").join("mysql"),
            socket_dir: tempfile::Builder::new().prefix("my-").tempdir()?,
        })
    }

    /// Returns the path of mysqld.
    pub(crate) fn program(&self) -> &str {
        self.command.last().map_or("", String::as_str)
    }

    /// Returns the lines of section `[mysql]` in the member's configuration.
    pub(crate) fn section(&self) -> String {
        let mut options = self.directories.clone();
        options.extend(geteuid().is_root().then(|| "--user=root".to_owned()));
        options.extend(OPTIONS.map(str::to_owned));
        let command = Value::from(self.command.clone());
        let data_dir = Value::from(self.data_dir.display().to_string());
        let socket = Value::from(self.socket().display().to_string());
        let options = Value::from(options);
        format!(
            "user = \"root\"\nmysqld = {command}\nextra_args = {options}\ndatadir = {data_dir}\nsocket = {socket}"
        )
    }

    /// Returns the account of the clients, which the member also uses.
    pub(crate) fn account(&self) -> ConnectOptions {
        ConnectOptions::new(Endpoint::unix(self.socket()), "root", "")
    }

    fn socket(&self) -> PathBuf {
        self.socket_dir.path().join("sock")
    }
}

impl Drop for Mysqld {
    fn drop(&mut self) {
        let argument = format!("--datadir={}", self.data_dir.display());
        let processes = procfs::process::all_processes().into_iter().flatten();
        for process in processes.flatten() {
            let words = process.cmdline().unwrap_or_default();
            if words.contains(&argument)
                && let Some(pid) = Pid::from_raw(process.pid)
                && let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            {
                // The signal fails only if the process has already ended.
                let _ = pidfd_send_signal(&process, Signal::KILL);
                // Waits for the end of mysqld, which may still write to the directory that is removed next.
                let _ = poll(
                    &mut [PollFd::new(&process, PollFlags::IN)],
                    Some(&KILL_LIMIT),
                );
            }
        }
    }
}

fn unusable(why: String) -> Failure {
    let advice = "set MYSQLD=/path/to/mysqld, or run `cargo xtask mysql` in a checkout; `witness demo` without --mysql \
                  needs nothing";
    Exit::Refused.because(why, advice)
}

/// Returns the command and the options for the server that `cargo xtask mysql` has unpacked, from its description
/// `tree.json`. The server runs through its own dynamic loader, and needs the paths of its files as options.
fn unpacked(folder: &Path) -> Attempt<(Vec<String>, Vec<String>)> {
    let folder = std::path::absolute(folder)?;
    let file = folder.join("tree.json");
    let file_name = file.display();
    let text = fs::read_to_string(&file).map_err(|error| {
        unusable(format!(
            "no mysqld is on the PATH, and no {file_name}: {error}"
        ))
    })?;
    let damaged = |why: &dyn Display| unusable(format!("{file_name} is damaged: {why}"));
    let tree: serde_json::Value = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    let inside = |path: &serde_json::Value| Some(folder.join(path.as_str()?).display().to_string());
    let mysqld = inside(&tree["mysqld"]).ok_or_else(|| damaged(&"it names no mysqld"))?;
    let libraries = tree["library_path"].as_array().into_iter().flatten();
    let libraries: Vec<String> = libraries.filter_map(inside).collect();
    let command = match inside(&tree["loader"]) {
        None => vec![mysqld],
        Some(loader) => vec![
            loader,
            // mysqld reads the list of its components from the directory of argv[0], which would otherwise be the loader.
            "--argv0".to_owned(),
            mysqld.clone(),
            "--library-path".to_owned(),
            libraries.join(":"),
            mysqld,
        ],
    };
    let options = [
        ("basedir", "basedir"),
        ("plugin-dir", "plugin_dir"),
        ("lc-messages-dir", "messages_dir"),
        ("character-sets-dir", "charsets_dir"),
    ];
    let options = options
        .into_iter()
        .filter_map(|(option, key)| Some(format!("--{option}={}", inside(&tree[key])?)));
    Ok((command, options.collect()))
}

/// Runs a server with `--version`, and returns its version.
///
/// # Errors
/// When the server does not run, or no member can use its version.
fn version_of(command: &[String]) -> Attempt<ServerVersion> {
    let program = &command[0];
    let output = Command::new(program)
        .args(&command[1..])
        .args(["--no-defaults", "--version"])
        .output()
        .map_err(|error| unusable(format!("{program} cannot be started: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rest = text.split_once("Ver ").map_or("", |(_, rest)| rest);
    let version: ServerVersion = rest.parse().map_err(|_| {
        let error = String::from_utf8_lossy(&output.stderr);
        unusable(format!("{program} reports no version: {text}{error}"))
    })?;
    match version_support(version, rest, "") {
        VersionSupport::Refused(why) => Err(unusable(format!("{program}: {why}"))),
        _ => Ok(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_server_runs_through_its_loader_with_its_directories() {
        let folder = tempfile::tempdir().unwrap();
        assert!(unpacked(folder.path()).is_err());
        let tree = r#"{"loader": "ld.so", "library_path": ["lib", "/lib"], "mysqld": "sbin/mysqld",
                       "basedir": "usr", "plugin_dir": null}"#;
        fs::write(folder.path().join("tree.json"), tree).unwrap();
        let (command, options) = unpacked(folder.path()).unwrap();
        let root = folder.path().display();
        let words = command.join(" ");
        let expected = format!(
            "{root}/ld.so --argv0 {root}/sbin/mysqld --library-path {root}/lib:/lib {root}/sbin/mysqld"
        );
        assert_eq!(words, expected);
        assert_eq!(options, [format!("--basedir={root}/usr")]);
    }
}
