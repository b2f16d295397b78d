//! A member from its start to its end, in phases. Each phase is a type, which offers only the actions that are possible in that phase.
//!
//! ```text
//!   Opened::open ──► answers calls, role `joining` ──► join ──► take_part ──► Running ──► stop
//!                       (identify, adopt, status)                                └─► failed: why
//! ```

mod opened;
mod running;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use binlog_store::{StoreError, StoreObserver};
use consensus::Timers;
use futures::FutureExt;
use mysqld_controller::ingest::CommitObserver;
use ring_admin::IdentityBook;
use spilling_bytes::SpillFolder;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use transport::{LocalMember, RunningServer, TransportConfig};

use crate::commands::Commands;
use crate::data_directory::DirectoryLock;
use crate::error::MemberError;
use crate::mysqld::GuardCommand;
use crate::ring_handle::RingHandle;
use crate::settings::Settings;
use crate::state::{MemberState, TakeoverObserver};

pub use crate::phases::opened::{Joined, Opened};
pub use crate::phases::running::Running;

/// The environment of the member, which the program provides.
#[derive(Default)]
pub struct Surroundings {
    /// Observes how long it takes to make entries durable.
    pub flushes: Option<Arc<dyn StoreObserver>>,
    /// Observes how long commits at the primary wait for the ring.
    pub commits: Option<Arc<dyn CommitObserver>>,
    /// Observes how long the member took to take over the leadership.
    pub takeovers: Option<Arc<dyn TakeoverObserver>>,
    /// How to start the guard, which excludes readers from a database member's mysqld if this process hangs or crashes. `None` if this
    /// process has no single member.
    pub guard: Option<GuardCommand>,
    /// The directory where the service manager finds the record of the managed process; `None` without a service manager.
    pub runtime_dir: Option<PathBuf>,
}

/// The parts of a member that exist in every phase.
struct Base {
    settings: Arc<Settings>,
    book: Arc<IdentityBook>,
    state: Arc<MemberState>,
    local: Arc<LocalMember>,
    transport: TransportConfig,
    /// The folder for large payloads.
    spill: SpillFolder,
    timers: Timers,
    with: Surroundings,
    commands: Commands,
    server: RunningServer,
    tasks: Tasks,
    /// This field is last, so that the directory is unlocked after everything else has ended.
    _lock: DirectoryLock,
}

impl Base {
    /// Spawns a task that watches the member, with [`Tasks::spawn_again`].
    fn watch<F>(
        &mut self,
        what: &'static str,
        ring: &RingHandle,
        mut begin: impl FnMut(Arc<MemberState>, RingHandle) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (state, ring) = (self.state.clone(), ring.clone());
        self.tasks
            .spawn_again(what, move || begin(state.clone(), ring.clone()));
    }

    /// Ends everything, the engine before the log, and unlocks the data directory.
    async fn close(mut self, ring: Option<RingHandle>) -> Result<(), MemberError> {
        self.tasks.stop.cancel();
        self.server.shutdown().await;
        if let Some(ring) = &ring {
            // The engine ends after the log has answered it. With a full disk, this could take forever without the next line.
            ring.log.wait_for_no_room();
            ring.member.shutdown().await;
        }
        self.tasks.set.shutdown().await;
        let Some(ring) = ring else { return Ok(()) };
        let closed = tokio::task::spawn_blocking(move || ring.log.close()).await;
        match closed {
            Ok(Ok(()) | Err(StoreError::Closed)) => Ok(()),
            Ok(Err(error)) => Err(MemberError::Store(error)),
            Err(error) => Err(MemberError::ended("closing the log", error)),
        }
    }
}

/// Delay before a task is started again after a panic. It is short enough for the task's work, and long enough not to fill the log.
const BEGUN_AGAIN: Duration = Duration::from_secs(60);

/// All tasks of a member. They end when this value is dropped, if not earlier.
#[derive(Default)]
struct Tasks {
    stop: CancellationToken,
    set: JoinSet<()>,
}

impl Tasks {
    /// Spawns a task that is dropped when the member closes.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.set.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Spawns a task without which the member can continue for some time. The task is dropped when the member closes. After a panic, which
    /// is logged with the task's name, the task is started again.
    fn spawn_again<F>(&mut self, what: &'static str, mut begin: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(async move {
            while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
                tracing::error!("{what} has panicked, and is begun again in {BEGUN_AGAIN:?}");
                tokio::time::sleep(BEGUN_AGAIN).await;
            }
        });
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn listen(key: &'static str, address: &str) -> Result<TcpListener, MemberError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| MemberError::Listen {
            key,
            address: address.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_begun_again_after_a_while_and_what_ends_is_not() {
        let mut tasks = Tasks::default();
        let begun = Arc::new(AtomicU32::new(0));
        let count = begun.clone();
        tasks.spawn_again("a test", move || {
            let nth = count.fetch_add(1, SeqCst);
            async move { assert_eq!(nth, 2, "on purpose") }
        });
        let mut seen = Vec::new();
        for _ in 0..4 {
            tokio::time::sleep(BEGUN_AGAIN).await;
            seen.push(begun.load(SeqCst));
        }
        assert_eq!(seen, [1, 2, 3, 3]);
    }
}
