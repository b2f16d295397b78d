//! One member of the embedded ring, on a runtime of its own: dropping that runtime is a crash, since
//! nothing of the member gets a chance to say or write anything more.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use binlog_store::SledMeta;
use member::settings::Settings;
use member::status::{MemberView, ViewSource};
use member::{MemberError, Opened, RingHandle, Surroundings};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::terminal::{Exit, Failure};

/// How long the last threads of a crashed member may take to let go of its files.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);
/// Two for each member, so that one long write does not hold up its heartbeats.
const WORKER_THREADS: usize = 2;

/// See the module.
pub(crate) struct EmbeddedMember {
    settings: Settings,
    alive: Mutex<Option<Alive>>,
    ring: watch::Sender<Option<RingHandle>>,
}

struct Alive {
    view: Arc<dyn ViewSource>,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), MemberError>>,
    runtime: Runtime,
}

impl EmbeddedMember {
    /// A member that does not run yet.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            alive: Mutex::new(None),
            ring: watch::Sender::new(None),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.own.name
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.settings.data_dir.clone()
    }

    /// The member's ring while it takes part in it.
    pub(crate) fn ring(&self) -> watch::Receiver<Option<RingHandle>> {
        self.ring.subscribe()
    }

    /// What it says of itself; none while it does not run.
    pub(crate) fn view(&self) -> Option<MemberView> {
        let view = self.lock().as_ref().map(|alive| alive.view.clone());
        view.map(|view| view.view())
    }

    /// Starts it; it comes to its ring by itself.
    pub(crate) async fn start(&self, bootstrap: bool) -> Result<(), Failure> {
        self.wait_until_released().await?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name(self.name())
            .enable_all()
            .build()?;
        let opening = Opened::open(self.settings.clone(), Surroundings::default());
        let opened = match runtime.spawn(opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(self.failure(&error)),
            Err(error) => return Err(Failure::error(error.to_string())),
        };
        let (view, stop) = (opened.view(), CancellationToken::new());
        let living = live(opened, bootstrap, self.ring.clone(), stop.clone());
        let ended = runtime.spawn(living);
        *self.lock() = Some(Alive {
            view,
            stop,
            ended,
            runtime,
        });
        Ok(())
    }

    /// Drops it with everything it was doing.
    pub(crate) async fn crash(&self) {
        self.ring.send_replace(None);
        let Some(Alive { runtime, .. }) = self.lock().take() else {
            return;
        };
        let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(RELEASE_PATIENCE));
        drop(ended.await);
    }

    /// Stops it in good order, without making another member the leader.
    pub(crate) async fn stop(&self) -> Result<(), Failure> {
        self.ring.send_replace(None);
        let Some(alive) = self.lock().take() else {
            return Ok(());
        };
        alive.stop.cancel();
        let stopped = alive.ended.await;
        alive.runtime.shutdown_background();
        match stopped {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failure(&error)),
            Err(error) => Err(Failure::error(error.to_string())),
        }
    }

    /// The writer thread of a crashed member finishes the write that it is in; until then the hard
    /// state beside the log is locked.
    async fn wait_until_released(&self) -> Result<(), Failure> {
        let meta = self.settings.data_dir.join("meta");
        let until = Instant::now() + RELEASE_PATIENCE;
        while meta.is_dir() {
            match SledMeta::open(&meta) {
                Ok(_) => break,
                Err(error) if Instant::now() > until => {
                    return Err(Failure::error(format!("{}: {error}", meta.display())));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        Ok(())
    }

    fn failure(&self, error: &MemberError) -> Failure {
        Failure::new(
            Exit::Error,
            format!("member `{}`: {error}", self.name()),
            "",
        )
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Alive>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From the way to the ring to `stop`.
async fn live(
    mut opened: Opened,
    bootstrap: bool,
    ring: watch::Sender<Option<RingHandle>>,
    stop: CancellationToken,
) -> Result<(), MemberError> {
    let joined = tokio::select! {
        joined = opened.join(bootstrap) => joined,
        () = stop.cancelled() => return opened.close().await,
    };
    // Why it does not join, if so, stands in its view.
    let Ok(joined) = joined else {
        stop.cancelled().await;
        return opened.close().await;
    };
    let Ok(running) = opened.take_part(joined).await else {
        return Ok(());
    };
    ring.send_replace(Some(running.ring().clone()));
    stop.cancelled().await;
    // Without a hand-over: another one is made the leader by the others.
    running.end_failed().await
}
