//! The applier at work on the member's mysqld: made ready for it, started, watched, ended.

use std::sync::Arc;
use std::time::Duration;

use applier::mysql::{MysqlBackend, MysqlOptions};
use applier::run::{ApplyError, Control, Ended, Options, Progress, Steering, apply};
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ring::{CommittedLog, Ring};
use crate::role::catching_up::executed;
use crate::role::errant::{advice, errant};
use crate::role::handover::drop_earlier_binlogs;
use crate::settings::{Depth, observe};

/// How the applier works.
#[derive(Debug, Clone)]
pub struct FollowOptions {
    /// The server and an account that may apply.
    pub connect: ConnectOptions,
    /// The run's options.
    pub run: Options,
    /// From a failure to the next attempt.
    pub retry: Duration,
    /// How often binlog files of a follower, which hold nothing but GTIDs, are dropped.
    pub tidy_every: Duration,
}

impl FollowOptions {
    /// The defaults for everything but the connection.
    pub fn new(mut connect: ConnectOptions) -> Self {
        connect.program_name = "witness-applier".to_owned();
        Self {
            connect,
            run: Options::default(),
            retry: Duration::from_secs(5),
            tidy_every: Duration::from_secs(60),
        }
    }
}

/// What following is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// It waits for the ring to say which transactions are committed.
    Asking,
    /// The applier runs.
    Applying,
}

/// Why following ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FollowError {
    /// The server has transactions that the ring has not.
    Errant(GtidSet),
    /// Anything else, in words.
    Other(String),
}

impl std::fmt::Display for FollowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Errant(gtids) => f.write_str(&advice(gtids)),
            Self::Other(words) => f.write_str(words),
        }
    }
}

/// An applier that was started.
pub(super) struct Follower {
    cancel: CancellationToken,
    task: JoinHandle<Result<(), FollowError>>,
    pub(super) step: watch::Receiver<Step>,
    pub(super) progress: Arc<Progress>,
}

impl Follower {
    /// Starts one. The server's door is closed, and no commit waits. The sessions of clients are closed first where the
    /// server was the primary: they would read from what is behind now, and look for the primary again this way.
    pub(super) fn start<R: Ring + CommittedLog>(
        ring: Arc<R>,
        options: FollowOptions,
        was_primary: bool,
    ) -> Self {
        let cancel = CancellationToken::new();
        let progress = Arc::new(Progress::new());
        let (steps, step) = watch::channel(Step::Asking);
        let (stop, shown) = (cancel.clone(), Arc::clone(&progress));
        let task = tokio::spawn(async move {
            if was_primary {
                close_sessions(&options.connect).await;
            }
            follow(&*ring, &options, stop, shown, steps).await
        });
        Self {
            cancel,
            task,
            step,
            progress,
        }
    }

    /// Waits until it ends by itself. Cancel safe.
    pub(super) async fn ended(&mut self) -> FollowError {
        match (&mut self.task).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) => FollowError::Other("the ring's log ended".to_owned()),
            Err(error) => FollowError::Other(format!("the applier broke: {error}")),
        }
    }

    /// Ends it: what is open is taken back. When this returns, nothing writes any more.
    pub(super) async fn end(self) {
        self.cancel.cancel();
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the applier had ended"),
            Err(error) => tracing::warn!(%error, "the applier broke"),
        }
    }
}

async fn follow<R: Ring + CommittedLog>(
    ring: &R,
    options: &FollowOptions,
    cancel: CancellationToken,
    progress: Arc<Progress>,
    steps: watch::Sender<Step>,
) -> Result<(), FollowError> {
    let begun = async {
        let committed = ring.settled().await;
        let committed = committed.map_err(|error| FollowError::Other(error.to_string()))?;
        let executed = executed(&options.connect).await;
        let executed = executed.map_err(FollowError::Other)?;
        let errant = errant(&executed, &committed);
        if !errant.is_empty() {
            return Err(FollowError::Errant(errant));
        }
        // From here on the server is not as a primary is.
        steps.send_replace(Step::Applying);
        let opened = open_to_the_applier(&options.connect).await;
        opened.map_err(FollowError::Other)?;
        let backend = MysqlBackend::connect(MysqlOptions::new(options.connect.clone())).await;
        let backend = backend.map_err(|error| FollowError::Other(error.to_string()))?;
        Ok((backend, executed))
    };
    let (backend, executed) = tokio::select! {
        () = cancel.cancelled() => return Ok(()),
        begun = begun => begun?,
    };
    let steering = Steering {
        control: watch::channel(Control::default()).1,
        cancel,
        progress,
    };
    let source = ring.committed_log(executed, options.run.max_transaction_bytes as u64);
    let applying = apply(source, Arc::new(backend), &options.run, steering);
    tokio::select! {
        ended = applying => match ended {
            Ok(Ended::Cancelled | Ended::WithTheLog) => Ok(()),
            Err(error) => Err(FollowError::Other(in_words(&error))),
        },
        () = tidy(options) => Ok(()),
    }
}

fn in_words(error: &ApplyError) -> String {
    format!("the applier stopped: {error}")
}

/// Makes the server writable for the applier and not for clients. Its commits must not wait for the ring, which has them: no
/// commit of a client waits either, since the door is closed.
async fn open_to_the_applier(connect: &ConnectOptions) -> Result<(), String> {
    let mut connection = Connection::open(connect).await.map_err(told)?;
    let observed = observe(&mut connection, Depth::Watch).await.map_err(told)?;
    if observed.waiting_sessions() > 0 {
        return Err("commits wait for an ACK, and would be let through".to_owned());
    }
    if let Some(names) = observed.semi_sync() {
        let off = format!("SET GLOBAL {} = OFF", names.enabled());
        connection.execute(&off).await.map_err(told)?;
    }
    // What is applied is in InnoDB with its GTIDs; the binlog has nothing but their names, and may lose them.
    connection
        .execute("SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF, GLOBAL sync_binlog = 0")
        .await
        .map_err(told)?;
    connection.close().await;
    Ok(())
}

/// Closes the sessions of all accounts but administrators'. What goes wrong costs clients nothing but an error at their next
/// write.
async fn close_sessions(connect: &ConnectOptions) {
    let closed = async {
        let mut connection = Connection::open(connect).await?;
        connection.execute("SET GLOBAL offline_mode = ON").await?;
        connection.execute("SET GLOBAL offline_mode = OFF").await?;
        connection.close().await;
        Ok::<(), LinkError>(())
    };
    if let Err(error) = closed.await {
        tracing::warn!(%error, "the sessions of the former primary's clients were not closed");
    }
}

/// Drops a follower's binlog files, for ever. A failure is tried again the next time.
async fn tidy(options: &FollowOptions) {
    loop {
        tokio::time::sleep(options.tidy_every).await;
        let dropped = async {
            let mut connection = Connection::open(&options.connect).await.map_err(told)?;
            drop_earlier_binlogs(&mut connection).await?;
            connection.close().await;
            Ok::<(), String>(())
        };
        if let Err(cause) = dropped.await {
            tracing::debug!(%cause, "a follower's binlog files stay for now");
        }
    }
}

fn told(error: LinkError) -> String {
    error.to_string()
}
