//! One `witness run` process and its folder.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal};

use crate::bounded_run::{KilledOnDrop, wait_within};
use crate::signals;

const STOP_LIMIT: Duration = Duration::from_secs(30);
const SHOWN_LINES: usize = 15;

#[derive(Debug)]
pub(super) struct MemberProcess {
    name: String,
    directory: PathBuf,
    // Outside of the data directory, whose disk may fail or fill up.
    config: PathBuf,
    output: PathBuf,
    child: Option<KilledOnDrop>,
}

impl MemberProcess {
    /// Creates the folder `folder/name` for a process that is started later.
    pub(super) fn new(name: &str, folder: &Path) -> Result<Self> {
        let directory = folder.join(name);
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self {
            name: name.to_owned(),
            config: folder.join(format!("{name}.toml")),
            output: folder.join(format!("{name}.log")),
            directory,
            child: None,
        })
    }

    pub(super) fn start(
        &mut self,
        wrapper: &[&str],
        binary: &Path,
        arguments: &[&str],
    ) -> Result<()> {
        ensure!(self.child.is_none(), "member {} runs already", self.name);
        let path = &self.output;
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = match wrapper.split_first() {
            None => Command::new(binary),
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(binary);
                command
            }
        };
        // The `WITNESS_` settings of the calling process are not for these members.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("WITNESS_") {
                command.env_remove(variable);
            }
        }
        let child = command
            .arg("run")
            .arg("--config")
            .arg(&self.config)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        self.child = Some(KilledOnDrop(child));
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.take().map(drop)
    }

    pub(super) fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait_for_exit(STOP_LIMIT)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref();
        let child = child.with_context(|| format!("member {} does not run", self.name))?;
        signals::send(Pid::from_child(child), signal)
    }

    pub(super) fn wait_for_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        let mut child = self.take()?;
        match wait_within(&mut child, limit)? {
            Some(status) => Ok(status),
            None => {
                self.child = Some(child);
                anyhow::bail!(
                    "member {} still runs after {limit:?}\n{}",
                    self.name,
                    self.last_words()
                )
            }
        }
    }

    /// Returns a message if the process has ended unexpectedly.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(format!("member {} ended ({status})", self.name))
    }

    pub(super) fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(|child| child.id())
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn config(&self) -> &Path {
        &self.config
    }

    pub(super) fn output(&self) -> String {
        fs::read(&self.output)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub(super) fn last_words(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n  ");
        format!("--- {} ---\n  {shown}\n", self.name)
    }

    fn take(&mut self) -> Result<KilledOnDrop> {
        self.child
            .take()
            .with_context(|| format!("member {} does not run", self.name))
    }
}
