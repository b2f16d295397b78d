//! A member in this process, on a runtime of its own: to drop that runtime is a crash, because the
//! member cannot send or write anything afterwards.

use std::time::{Duration, Instant};

use binlog_store::SledMeta;
use futures::FutureExt;
use member::settings::Settings;
use member::{MemberError, Opened, RingHandle, Surroundings};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinHandle, block_in_place};
use tokio_util::sync::CancellationToken;

use crate::terminal::Failure;

/// The limit for the last threads of a crashed member to end.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
const RELEASE_POLL: Duration = Duration::from_millis(20);
/// Two, so that one long write does not delay heartbeats.
const WORKER_THREADS: usize = 2;

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
    pub(crate) fn start(&mut self, bootstrap: bool) -> Result<(), Failure> {
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
    pub(crate) fn crash(&mut self) -> Result<(), Failure> {
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
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
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
    fn wait_until_released(&self) -> Result<(), Failure> {
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
