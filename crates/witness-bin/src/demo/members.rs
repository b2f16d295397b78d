//! A member of the demonstration: in this process, or as a process of this program (`witness run`).

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use binlog_store::SledMeta;
use futures::FutureExt;
use member::settings::Settings;
use member::{MemberError, Opened, RingHandle, Surroundings};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinHandle, block_in_place};
use tokio_util::sync::CancellationToken;

use crate::terminal::{Attempt, Failure};

/// The limit for the last threads of a crashed member to end.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// Two, so that one long write does not delay heartbeats.
const WORKER_THREADS: usize = 2;

/// A member in this process, on a runtime of its own: to drop that runtime is a crash, because the
/// member cannot send or write anything afterwards.
pub(crate) struct EmbeddedMember {
    settings: Settings,
    running: Option<Running>,
    ring: watch::Sender<Option<RingHandle>>,
}

struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), MemberError>>,
    runtime: Runtime,
}

impl EmbeddedMember {
    /// A member that does not run yet.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            running: None,
            ring: watch::Sender::new(None),
        }
    }

    /// The member's ring while it takes part in it.
    pub(crate) fn ring(&self) -> watch::Receiver<Option<RingHandle>> {
        self.ring.subscribe()
    }

    /// Starts it; it opens its log and joins its ring in the background.
    pub(crate) fn start(&mut self, bootstrap: bool) -> Attempt {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name(&self.settings.own.name)
            .enable_all()
            .build()?;
        let stop = CancellationToken::new();
        let (settings, ring) = (self.settings.clone(), self.ring.clone());
        self.running = Some(Running {
            ended: runtime.spawn(live(settings, bootstrap, ring, stop.clone())),
            stop,
            runtime,
        });
        Ok(())
    }

    /// Drops it with everything that it was doing.
    pub(crate) fn crash(&mut self) -> Attempt {
        self.ring.send_replace(None);
        match self.running.take() {
            Some(Running { runtime, .. }) => block_in_place(|| {
                runtime.shutdown_timeout(RELEASE_LIMIT);
                self.wait_until_released()
            }),
            None => Ok(()),
        }
    }

    /// Stops it cleanly, without a transfer of the leadership.
    pub(crate) async fn stop(&mut self) -> Attempt {
        self.ring.send_replace(None);
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        running.stop.cancel();
        let ended = running.ended.await;
        running.runtime.shutdown_background();
        ended.map_err(Failure::error)?.map_err(Failure::error)
    }

    /// How it has ended by itself, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let ended = (&mut self.running.as_mut()?.ended).now_or_never()?;
        let why = match ended {
            Ok(Ok(())) => "without an error".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        Some(format!("member `{}` ended: {why}", self.settings.own.name))
    }

    /// The writer thread of a crashed member finishes its current write; until then it holds the lock of
    /// the hard state.
    fn wait_until_released(&self) -> Attempt {
        let meta = self.settings.data_dir.join("meta");
        let until = Instant::now() + RELEASE_LIMIT;
        while meta.is_dir()
            && let Err(error) = SledMeta::open(&meta)
        {
            if Instant::now() > until {
                return Err(Failure::error(format!("{}: {error}", meta.display())));
            }
            std::thread::sleep(RELEASE_POLL);
        }
        Ok(())
    }
}

impl Drop for EmbeddedMember {
    fn drop(&mut self) {
        // Its files are not used after this, so an error does not matter.
        let _ = self.crash();
    }
}

/// From the start to `stop`.
async fn live(
    settings: Settings,
    bootstrap: bool,
    ring: watch::Sender<Option<RingHandle>>,
    stop: CancellationToken,
) -> Result<(), MemberError> {
    let mut opened = Opened::open(settings, Surroundings::default()).await?;
    let joined = opened.join(bootstrap).await?;
    let running = opened.take_part(joined).await?;
    ring.send_replace(Some(running.ring().clone()));
    tokio::select! {
        error = running.failed() => Err(error),
        () = stop.cancelled() => running.end_failed().await,
    }
}

/// A member with a mysqld stops mysqld first.
const STOP_LIMIT: Duration = Duration::from_secs(60);
const STOP_POLL: Duration = Duration::from_millis(20);
const SHOWN_LINES: usize = 15;

/// A member as a process.
pub(crate) struct MemberProcess {
    name: &'static str,
    config: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl MemberProcess {
    /// Writes the configuration to `NAME.toml` in `directory`; the log will be `NAME.log`. No process runs
    /// yet.
    pub(crate) fn new(directory: &Path, name: &'static str, toml: &str) -> Attempt<Self> {
        let [config, log] = ["toml", "log"].map(|kind| directory.join(format!("{name}.{kind}")));
        fs::write(&config, toml)?;
        Ok(Self {
            name,
            config,
            log,
            child: None,
        })
    }

    pub(crate) fn start(&mut self, bootstrap: bool) -> Attempt {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").arg("--config").arg(&self.config);
        command.args(bootstrap.then_some("--bootstrap"));
        // The operator's variables are for members of the operator.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("WITNESS_") {
                command.env_remove(variable);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?);
        command.stderr(log);
        // Outside the terminal's foreground group: Ctrl-C ends the demonstration, which ends its members.
        command.process_group(0);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Kills it (SIGKILL).
    pub(crate) fn crash(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops it (SIGTERM).
    ///
    /// # Errors
    /// When it does not end in time, or not with success.
    pub(crate) async fn stop(&mut self) -> Attempt {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        kill_process(Pid::from_child(child), Signal::TERM).map_err(Failure::error)?;
        let begun = Instant::now();
        let how = loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => break format!("ended with {status}"),
                None if begun.elapsed() < STOP_LIMIT => tokio::time::sleep(STOP_POLL).await,
                None => break format!("still runs {} s after SIGTERM", STOP_LIMIT.as_secs()),
            }
        };
        let (name, lines) = (self.name, self.last_lines());
        Err(Failure::error(format!("member `{name}` {how}\n{lines}")))
    }

    /// How it has ended by itself, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(format!("member `{}` ended ({status})", self.name))
    }

    /// The end of its log.
    pub(crate) fn last_lines(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n  ");
        format!("--- {} ---\n  {shown}\n", self.name)
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        // It fails only when the process has ended.
        let _ = self.crash();
    }
}
