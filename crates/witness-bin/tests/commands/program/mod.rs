//! Runs the built `witness` in a scratch directory and keeps what it printed.

pub(crate) mod alone;
pub(crate) mod played;
pub(crate) mod ring;

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory of its own for one test, removed at the end.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes one.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a scratch directory"))
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path inside.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file inside.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.join(name), text).expect("a file in the scratch directory");
    }
}

/// The command, in that directory, with none of the tester's own variables.
pub(crate) struct Program(Command);

/// Writes a secret, readable by its owner alone.
pub(crate) fn write_secret(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("its mode");
}

/// `witness`, to be given arguments.
pub(crate) fn witness(scratch: &Scratch) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_witness"));
    command.current_dir(scratch.path()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WITNESS_") {
            command.env_remove(name);
        }
    }
    Program(command)
}

impl Program {
    /// Adds arguments.
    pub(crate) fn args<A: AsRef<std::ffi::OsStr>>(
        mut self,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        self.0.args(args);
        self
    }

    /// Runs with the rights of an ordinary account, even where root runs the test.
    pub(crate) fn without_the_rights_of_root(self) -> Self {
        if !rustix::process::geteuid().is_root() {
            return self;
        }
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-dac_override", "--inh-caps=-all", "--"]);
        command.arg(self.0.get_program()).args(self.0.get_args());
        for (name, value) in self.0.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        command.current_dir(self.0.get_current_dir().expect("a scratch directory"));
        Self(command)
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Run {
        let output = self.0.output().expect("the program runs");
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Starts it with its output piped.
    pub(crate) fn spawn(mut self) -> std::process::Child {
        self.0
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }
}

/// How a run ended.
pub(crate) struct Run {
    /// Exit code; -1 after a signal.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Run {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exit {}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }
}
