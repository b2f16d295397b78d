//! Runs the built `witness` in a scratch directory, and captures its output.

pub(crate) mod alone;
pub(crate) mod played;
pub(crate) mod ring;

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A temporary directory for one test, which is removed at the end.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Creates a directory.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a scratch directory"))
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns a path in the directory.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in the directory.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.join(name), text).expect("a file in the scratch directory");
    }
}

/// A `witness` command that runs in the scratch directory, without the `WITNESS_*` variables of the tester's environment.
pub(crate) struct Program(Command);

/// Writes a file that only its owner can read.
pub(crate) fn write_secret(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("its mode");
}

/// Returns a `witness` command without arguments.
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

    /// Makes the command run with the rights of an ordinary account, even if root runs the test.
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

    /// Runs the command to its end.
    pub(crate) fn run(mut self) -> Run {
        let output = self.0.output().expect("the program runs");
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Starts the command with its output in pipes.
    pub(crate) fn spawn(mut self) -> std::process::Child {
        self.0
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }
}

/// The result of a run.
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
