//! The members of the demonstration as processes: this same program, with configurations of its own.
//! Only processes that were started here are ever signalled.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::terminal::Failure;

/// How often a process that should end is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// One member's process.
pub(crate) struct MemberProcess {
    pub(crate) name: String,
    data_dir: PathBuf,
    config: PathBuf,
    child: Option<Child>,
}

impl MemberProcess {
    /// A member with this configuration, which does not run yet.
    pub(crate) fn new(name: &str, data_dir: &Path, toml: &str) -> Result<Self, Failure> {
        std::fs::create_dir_all(data_dir)?;
        let config = data_dir.join("witness.toml");
        std::fs::write(&config, toml)?;
        Ok(Self {
            name: name.to_owned(),
            data_dir: data_dir.to_owned(),
            config,
            child: None,
        })
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Starts it; what it says goes to a file in its data directory.
    pub(crate) fn start(&mut self, bootstrap: bool) -> Result<(), Failure> {
        let said = self.data_dir.join("output.log");
        let output = OpenOptions::new().create(true).append(true).open(said)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").arg("--config").arg(&self.config);
        if bootstrap {
            command.arg("--bootstrap");
        }
        // Settings of the caller are for members of the caller.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("WITNESS_") {
                command.env_remove(variable);
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks it to stop.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(child) = &self.child {
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }

    /// Waits for its end; none when it still runs after that time, or did not run.
    pub(crate) async fn ended(
        &mut self,
        patience: Duration,
    ) -> Result<Option<ExitStatus>, Failure> {
        let until = Instant::now() + patience;
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        loop {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(Some(status));
            }
            if Instant::now() > until {
                return Ok(None);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A sentence if it has ended without having been asked to.
    pub(crate) fn has_ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(format!(
            "member `{}` ended ({status}):\n{}",
            self.name,
            self.last_words()
        ))
    }

    /// The last lines that it said.
    pub(crate) fn last_words(&self) -> String {
        let said = std::fs::read_to_string(self.data_dir.join("output.log")).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(6)..].join("\n")
    }

    /// Kills the mysqld that it left behind, if its pid file names one that works in `datadir`.
    pub(crate) fn kill_mysqld(&self, datadir: &Path) {
        let Ok(text) = std::fs::read_to_string(self.data_dir.join("mysqld.pid")) else {
            return;
        };
        let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else {
            return;
        };
        let line =
            std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let ours = format!("--datadir={}\0", datadir.display());
        let is_ours = line
            .windows(ours.len())
            .any(|window| window == ours.as_bytes());
        if is_ours && test_kill_process(pid).is_ok() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
