//! Runs programs to their end within a deadline.
//!
//! All programs of the fixtures run through this module, so that a hung server fails a test instead of hanging it. A program that passes
//! its deadline is killed. Only this child is killed, through its own handle.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The result of a program.
#[derive(Debug)]
pub struct Finished {
    /// The program's exit status.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Checks that the program succeeded, and returns its standard output as text.
    ///
    /// # Errors
    /// If the program failed (the message contains its standard error), or its output is not UTF-8.
    pub fn into_text(self, what: &str) -> Result<String> {
        if !self.status.success() {
            let said = String::from_utf8_lossy(&self.stderr);
            bail!("{what} failed ({}): {}", self.status, said.trim());
        }
        String::from_utf8(self.stdout)
            .with_context(|| format!("{what} wrote something that is not UTF-8"))
    }
}

/// A program that runs in the background. Dropping it kills the program.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: KilledOnDrop,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    /// Starts `command` with `stdin` as its input. `what` names it in messages.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(what: impl Into<String>, command: Command, stdin: Vec<u8>) -> Result<Self> {
        Self::start_fed(what, command, move |mut pipe| {
            drop(pipe.write_all(&stdin));
        })
    }

    /// As [`Self::start`], but `feed` writes the standard input. It runs in its own thread until it returns.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start_fed(
        what: impl Into<String>,
        mut command: Command,
        feed: impl FnOnce(ChildStdin) + Send + 'static,
    ) -> Result<Self> {
        let what = what.into();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("cannot start {what} ({})", command.get_program().display())
            })?;
        if let Some(pipe) = child.stdin.take() {
            // A separate thread, because a program may answer before it has read everything. The thread is not joined, because a program
            // may ignore its input; the thread ends when the pipe breaks, if not earlier.
            thread::spawn(move || feed(pipe));
        }
        let stdout = child.stdout.take().map(drain);
        let stderr = child.stderr.take().map(drain);
        Ok(Self {
            what,
            child: KilledOnDrop(child),
            stdout,
            stderr,
        })
    }

    /// True if the program has ended.
    ///
    /// # Errors
    /// If waiting for the program fails.
    pub fn is_finished(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for the program's end. If it runs longer than `limit`, it is killed, and the result is an error.
    ///
    /// # Errors
    /// If the limit passes.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        let Some(status) = wait_within(&mut self.child, limit)? else {
            bail!("{} did not end within {limit:?}", self.what);
        };
        Ok(self.collect(status))
    }

    /// Waits for the program's end. If it runs longer than `limit`, it is killed. Returns its output until then in either case.
    ///
    /// # Errors
    /// If waiting for the program fails.
    pub fn finish_or_kill(mut self, limit: Duration) -> Result<Finished> {
        let status = match wait_within(&mut self.child, limit)? {
            Some(status) => status,
            None => {
                self.child.kill()?;
                self.child.wait()?
            }
        };
        Ok(self.collect(status))
    }

    fn collect(&mut self, status: ExitStatus) -> Finished {
        Finished {
            status,
            stdout: collect(self.stdout.take()),
            stderr: collect(self.stderr.take()),
        }
    }
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub struct KilledOnDrop(pub Child);

impl Deref for KilledOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both fail only for a child that was already waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command` to its end, within `limit`.
///
/// # Errors
/// If the program cannot be started, or passes its limit. If the program itself fails, that is in the result's status.
pub fn run(
    what: impl Into<String>,
    command: Command,
    stdin: Vec<u8>,
    limit: Duration,
) -> Result<Finished> {
    Running::start(what, command, stdin)?.finish(limit)
}

/// Runs a program without input, and returns its standard output.
///
/// # Errors
/// If the program cannot be started, does not end in time, or fails; the message contains its standard error.
pub fn text(what: &str, command: Command, limit: Duration) -> Result<String> {
    run(what, command, Vec::new(), limit)?.into_text(what)
}

/// Waits for a child's end, at most `limit`. `None` if the child is still running.
///
/// # Errors
/// If waiting for the child fails.
pub fn wait_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        match poll(
            &mut [PollFd::new(&process, PollFlags::IN)],
            Some(&left.try_into()?),
        ) {
            // A signal to this process is unrelated to the child.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(child.try_wait()?)
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        // A broken pipe ends the output. The output read before is used.
        let _ = pipe.read_to_end(&mut all);
        all
    })
}

fn collect(drained: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    drained
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default()
}

// Wrapper scripts: programs that run other programs with fixed arguments.

/// Writes a script into `folder`. The script runs one command: `before`, then the script's own arguments, then `after`.
///
/// # Errors
/// If the script cannot be written.
pub fn write_program(
    folder: &Path,
    name: &str,
    before: &[OsString],
    after: &[String],
) -> Result<PathBuf> {
    let before = before.iter().map(|word| word.to_string_lossy());
    let before: Vec<String> = before.map(|word| quoted(&word)).collect();
    let after: Vec<String> = after.iter().map(|word| quoted(word)).collect();
    let (before, after) = (before.join(" "), after.join(" "));
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\nexec {before} \"$@\" {after}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

// Calls cargo from a program that cargo itself runs.

/// Prefixes of the variables in which cargo describes the calling package. They must not reach another cargo: build scripts that read them
/// (such as `ring`'s) would run again. Each change between the two ways of calling cargo would then recompile a large part of the
/// workspace.
const OF_A_PACKAGE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// Returns a command for the cargo that runs this program, in the checkout, with the environment of a call from a shell.
#[must_use]
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::checkout());
    for (variable, _) in env::vars_os().filter(|(name, _)| is_of_a_package(name)) {
        cargo.env_remove(variable);
    }
    cargo
}

fn is_of_a_package(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    OF_A_PACKAGE
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_larger_than_a_pipe_arrives_whole() {
        let input = vec![b'x'; 1 << 20];
        let done = run("cat", shell("cat"), input.clone(), Duration::from_secs(20)).unwrap();
        assert!(done.status.success());
        assert_eq!(done.stdout, input);
    }

    #[test]
    fn a_program_beyond_its_limit_is_an_error_that_names_it() {
        let started = Instant::now();
        let error = run(
            "the sleeper",
            shell("exec sleep 60"),
            Vec::new(),
            Duration::from_millis(50),
        )
        .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the sleeper did not end within 50ms"),
            "{error}"
        );
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_failure_reports_what_the_program_said() {
        let done = run(
            "it",
            shell("echo the reason >&2; exit 3"),
            Vec::new(),
            Duration::from_secs(20),
        )
        .unwrap();
        let error = done.into_text("it").unwrap_err().to_string();
        assert!(
            error.contains("the reason") && error.contains('3'),
            "{error}"
        );
    }
}

#[cfg(test)]
mod cargo_tests {
    use super::*;

    /// `cargo test` sets these variables for this very program.
    #[test]
    fn another_cargo_does_not_inherit_the_calling_package() {
        for told in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(env::var_os(told).is_some(), "{told}");
            let cargo = cargo();
            let mut changed = cargo.get_envs();
            assert!(
                changed.any(|(name, value)| name == told && value.is_none()),
                "{told} is handed on"
            );
        }
        assert!(!is_of_a_package(OsStr::new("CARGO_TARGET_DIR")));
        assert!(!is_of_a_package(OsStr::new("CARGO_PROFILE_DEV_DEBUG")));
    }
}
