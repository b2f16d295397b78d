//! The task that executes the decisions.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, ServerVersion};
use spilling_bytes::long_work;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::read_only::{self, ReadOnlyError};
use crate::sessions::{end_clients, is_a_dump};
use crate::settings::{Depth, observe};
use crate::supervisor::decision::{
    Action, Backoff, DataDir, Found, ProcessId, Restart, STOP_LIMIT, Situation, Stopping, Wanted,
    decide,
};
use crate::supervisor::launch::SupervisorError;
use crate::supervisor::options::{
    StartGuard, SupervisorHandle, SupervisorOptions, SupervisorState, SupervisorStatus,
};
use crate::supervisor::process::Identity;
use crate::supervisor::{command_line, process};

/// Runs a mysqld.
pub struct Supervisor {
    pub(super) options: SupervisorOptions,
    /// The guard that decides before each start.
    pub guard: Option<Arc<dyn StartGuard>>,
    /// True if commits of mysqld wait for the ring, for a moment when mysqld cannot be queried.
    pub commits_wait: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    pub(super) wanted: watch::Receiver<Wanted>,
    /// Number and kind of restart requests, and the number of executed requests.
    pub(super) restart: (watch::Receiver<(u64, Restart)>, u64),
    /// True until a new data directory is initialised for mysqld.
    pub(super) new_data: watch::Sender<bool>,
    pub(super) status: watch::Sender<SupervisorStatus>,
    pub(super) server: Option<Server>,
    /// The last mysqld that passed the guard, or that ran before this supervisor did.
    pub(super) guarded: Option<Identity>,
    /// The message about a mysqld that was started without the guard, with the fix.
    pub(super) unguarded: Option<String>,
    pub(super) version: Option<ServerVersion>,
    pub(super) backoff: Backoff,
    pub(super) not_before: Option<Instant>,
    pub(super) stopping: Option<Stopping>,
    pub(super) killed: Option<ProcessId>,
    /// Size of mysqld's error log before the last start, in bytes.
    pub(super) log_before: u64,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) id: ProcessId,
    /// The child process, if this process started mysqld.
    pub(super) child: Option<Child>,
    pub(super) since: Instant,
}

impl Server {
    pub(super) fn new(id: ProcessId, child: Option<Child>) -> Self {
        let since = Instant::now();
        Self { id, child, since }
    }
}

pub(super) fn child_id(child: &Child) -> Option<ProcessId> {
    let id = i32::try_from(child.id()?).ok()?;
    Some(ProcessId(id))
}

/// The pause between two checks while mysqld starts or stops, and for a mysqld that another program starts.
const POLL: Duration = Duration::from_millis(100);
/// The pause between two checks of a running mysqld. The system reports its end earlier.
const STEADY_POLL: Duration = Duration::from_secs(1);
/// How long an initialisation may take.
const INITIALISE_LIMIT: Duration = Duration::from_secs(300);
/// How long a wrapper may take to start its program.
const STARTED: Duration = Duration::from_secs(10);
/// An ended process may remain visible for this long.
const JUST_ENDED: Duration = Duration::from_millis(5);

impl Supervisor {
    /// Creates a supervisor that does not run yet.
    pub fn new(options: SupervisorOptions) -> (Self, SupervisorHandle) {
        let (wanted, wanted_receiver) = watch::channel(Wanted::Running);
        let (restart, restart_receiver) = watch::channel((0, Restart::Kill));
        let beginning = SupervisorStatus {
            state: SupervisorState::Beginning,
            since: Instant::now(),
            starts: 0,
            warning: None,
        };
        let (status, status_receiver) = watch::channel(beginning);
        let backoff = Backoff::new(options.retry.0, options.retry.1);
        let new_data = watch::Sender::new(false);
        let initialises = options.external.is_none();
        let supervisor = Self {
            options,
            guard: None,
            commits_wait: None,
            wanted: wanted_receiver,
            restart: (restart_receiver, 0),
            new_data: new_data.clone(),
            status,
            server: None,
            guarded: None,
            unguarded: None,
            version: None,
            backoff,
            not_before: None,
            stopping: None,
            killed: None,
            log_before: 0,
        };
        let handle = SupervisorHandle {
            wanted,
            restart,
            new_data,
            initialises,
            status: status_receiver,
        };
        (supervisor, handle)
    }

    /// Runs until mysqld is stopped or must be left running. If this future is dropped, mysqld keeps running.
    pub async fn run(mut self) {
        loop {
            let action = match self.situation() {
                Ok(situation) => decide(&situation, Instant::now()),
                Err(cause) => {
                    if self.not_before.is_none_or(|at| Instant::now() >= at) {
                        self.fail(cause.to_string());
                    }
                    Action::Wait
                }
            };
            match action {
                Action::End => break,
                Action::Wait => self.something_changes().await,
                Action::Start => self.start().await,
                Action::SetDataAside => self.set_data_aside().await,
                Action::Initialise => self.initialise().await,
                Action::RefuseEmpty => self.fail(format!(
                    "the data directory {} is empty: restore a copy into it, or set mysql.initialize = true for a new server",
                    self.options.server.data_dir.display()
                )),
                Action::Adopt(id) => self.adopt(id),
                Action::Drain(_) => self.drain().await,
                Action::Ask(id) => self.ask(id).await,
                Action::Kill(id) => self.kill(id).await,
            }
        }
        self.go(SupervisorState::Ended);
    }

    fn situation(&mut self) -> Result<Situation, SupervisorError> {
        let found = self.found();
        let (times, how) = *self.restart.0.borrow_and_update();
        if found == Found::Nothing {
            self.restart.1 = times;
        }
        let restart = (times > self.restart.1).then_some(how);
        let wanted = *self.wanted.borrow_and_update();
        if wanted != Wanted::Stopped && restart != Some(Restart::Stop) {
            self.stopping = None;
        }
        let data_dir = match found {
            Found::Nothing if wanted == Wanted::Running => {
                let path = &self.options.server.data_dir;
                command_line::look(path)
                    .map_err(|error| SupervisorError::DataDir(path.clone(), error))?
            }
            _ => DataDir::Ready,
        };
        Ok(Situation {
            found,
            data_dir,
            wanted,
            restart,
            may_initialise: self.options.may_initialise,
            new_data: *self.new_data.borrow(),
            not_before: self.not_before,
            stopping: self.stopping,
            drain_limit: self.options.drain_limit,
        })
    }

    /// Returns the running process. Also detects the end of the previous one.
    pub(super) fn found(&mut self) -> Found {
        self.follow_wrapper();
        let Some(server) = &mut self.server else {
            return self.find();
        };
        let ended = match &mut server.child {
            Some(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(SupervisorError::Ended(status).to_string()),
                Err(error) => Some(format!("mysqld cannot be waited for: {error}")),
            },
            None if self.options.serves(server.id) => None,
            None => Some("mysqld has ended".to_owned()),
        };
        let Some(cause) = ended else {
            return Found::Known(server.id);
        };
        let ran = server.since.elapsed();
        self.server = None;
        if self.restart.0.borrow().0 > self.restart.1 {
            info!("{cause}: it is restarted");
        } else if *self.wanted.borrow() == Wanted::Running {
            self.backoff.ended_after(ran);
            self.fail(format!("{cause} after {ran:.1?}{}", self.last_errors()));
        }
        // A wrapper may have ended before its program.
        self.find()
    }

    /// Finds the process that uses the data directory if this supervisor has started none.
    fn find(&mut self) -> Found {
        let found = self.options.find();
        let (Found::Unknown(id), Some(guarded)) = (found, self.guarded) else {
            return found;
        };
        let starts_itself = |guard: &Arc<dyn StartGuard>| guard.may_start_itself();
        if self.identity(id) == guarded || self.guard.as_ref().is_none_or(starts_itself) {
            return found;
        }
        let advice = match self.options.external {
            Some(_) => "in mysqld's unit set Restart=no, and disable the unit",
            None => "set mysql.mysqld to mysqld itself, and start mysqld by the member alone",
        };
        let words = format!(
            "mysqld was started by something other than the member, and killed, because its recovery commits transactions that the \
             ring may lack: {advice}"
        );
        if self.unguarded.as_ref() != Some(&words) {
            error!("{words}");
            let warning = Some(words.clone());
            self.status.send_modify(|status| status.warning = warning);
            self.unguarded = Some(words);
        }
        Found::Unguarded(id)
    }

    pub(super) fn identity(&self, id: ProcessId) -> Identity {
        match &self.options.external {
            Some(external) => external.identity(id),
            None => Identity::of(id),
        }
    }

    /// Finds mysqld below its wrapper, because signals must reach mysqld. If mysqld has ended, the wrapper is killed first: it would start
    /// another mysqld, whose recovery commits unacknowledged transactions.
    fn follow_wrapper(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        let wrapper = server.child.as_ref().and_then(child_id);
        let Some(wrapper) = wrapper.filter(|_| self.options.external.is_none()) else {
            return;
        };
        let lives = self.guarded == Some(Identity::of(server.id)) && self.options.serves(server.id);
        if server.id != wrapper && !lives {
            if let Err(error) = process::kill_group(wrapper) {
                warn!(
                    pid = wrapper.0,
                    "the wrapper of mysqld cannot be killed: {error}"
                );
            }
            return;
        }
        let inner = process::innermost(server.id, &self.options.mark());
        if inner != server.id {
            info!(pid = inner.0, "mysqld runs in a wrapper");
            server.id = inner;
            self.guarded = Some(Identity::of(inner));
            self.runs(inner, false);
        }
    }

    /// Returns the last errors, for a message. The error log of an external server is not known here.
    fn last_errors(&self) -> String {
        match self.options.external {
            Some(_) => "; see its error log".to_owned(),
            None => self.options.server.last_errors(self.log_before),
        }
    }

    fn pause(&self) -> Duration {
        let server = self.server.as_ref();
        let runs = server.is_some_and(|server| server.since.elapsed() >= STARTED)
            && self.stopping.is_none()
            && self.restart.0.borrow().0 == self.restart.1
            && *self.wanted.borrow() == Wanted::Running;
        if runs { STEADY_POLL } else { POLL }
    }

    async fn something_changes(&mut self) {
        let pause = self.pause();
        let (id, external) = (
            self.server.as_ref().map(|server| server.id),
            self.options.external.clone(),
        );
        let process_ends = async {
            match (id, &external) {
                (Some(id), Some(external)) => external.ended(id).await,
                (Some(id), None) => process::ended(id).await,
                (None, _) => std::future::pending().await,
            }
            tokio::time::sleep(JUST_ENDED).await;
        };
        let server = self.server.as_mut();
        let child = server.and_then(|server| server.child.as_mut());
        let child_ends = async {
            match child {
                Some(child) => drop(child.wait().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = child_ends => {}
            () = process_ends => {}
            changed = self.wanted.changed() => if changed.is_err() {
                // The handle was dropped, so no request can follow.
                tokio::time::sleep(POLL).await;
            },
            // An error means that no request can follow.
            Ok(()) = self.restart.0.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    fn adopt(&mut self, id: ProcessId) {
        self.guarded = Some(self.identity(id));
        self.check_start();
        info!(pid = id.0, "mysqld runs already, and is taken over");
        self.server = Some(Server::new(id, None));
        self.runs(id, true);
    }

    async fn set_data_aside(&mut self) {
        let data_dir = self.options.server.data_dir.clone();
        let old = data_dir.clone();
        match long_work::on_disk(move || command_line::set_aside(&old)).await {
            Ok(kept) => {
                // The failed starts were those of the old data. A copy ends with a restart, which would have to wait as long.
                self.backoff = Backoff::new(self.options.retry.0, self.options.retry.1);
                warn!(
                    data_dir = %data_dir.display(),
                    kept = %kept.display(),
                    "mysqld could not be started on its data directory, which was renamed: a new one is initialised"
                );
            }
            Err(error) => {
                self.new_data.send_replace(false);
                self.fail(format!(
                    "the data directory {}, on which mysqld cannot be started, cannot be renamed: {error}; move its contents away, \
                     then run `witness reprovision --from` again",
                    data_dir.display()
                ));
            }
        }
    }

    async fn initialise(&mut self) {
        self.not_before = None;
        info!(data_dir = %self.options.server.data_dir.display(), "the data directory is being initialised");
        self.go(SupervisorState::Initialising);
        if let Err(cause) = self.try_initialise().await {
            self.fail(format!(
                "the data directory cannot be initialised: {cause}{}",
                self.last_errors()
            ));
        }
    }

    async fn try_initialise(&mut self) -> Result<(), SupervisorError> {
        let data_dir = self.options.server.data_dir.clone();
        command_line::prepare(&data_dir)?;
        let statements = self.options.server.pid_file.with_extension("init.sql");
        let has_account =
            command_line::write_account(&statements, &self.options.account, self.options.rights)?;
        let init_file = has_account.then(|| statements.to_string_lossy());
        let unwanted = self.unwanted();
        let server = &self.options.server;
        let words = server.initialise_words(init_file.as_deref());
        self.log_before = server.error_log_len();
        let ended = server.run_bounded(&words, INITIALISE_LIMIT, unwanted);
        let ended = ended.await;
        // The file contains a password.
        if has_account {
            fs::remove_file(&statements)?;
        }
        let status = ended?;
        if !status.success() {
            return Err(SupervisorError::Ended(status));
        }
        warn!("root@localhost of the new server has no password: give it one");
        command_line::finish(&data_dir)?;
        self.new_data.send_replace(false);
        Ok(())
    }

    async fn drain(&mut self) {
        let commits_wait = self.commits_wait.as_ref().is_some_and(|wait| wait());
        let stopping = self.stopping.get_or_insert(Stopping {
            since: Instant::now(),
            drained: false,
            ends_unasked: None,
            asked: None,
        });
        let limit = self.options.drain_limit;
        let left = limit.saturating_sub(stopping.since.elapsed());
        let drained = tokio::time::timeout(left, drain(&self.options.account)).await;
        let cause = match drained {
            Ok(Ok(None)) => {
                stopping.drained = true;
                return;
            }
            // mysqld does not listen. It is starting, or it is stopping while sessions still wait for their ACK. A server that has just
            // begun to start has no connections.
            Ok(Err(LinkError::Unreachable { .. })) if !commits_wait => {
                stopping.drained = true;
                return;
            }
            Ok(Err(LinkError::Unreachable { .. })) => {
                stopping.ends_unasked.get_or_insert_with(Instant::now);
                "others have asked it to stop, and commits in it wait for the ring".to_owned()
            }
            Ok(unknown_or_not_yet) => {
                stopping.ends_unasked = None;
                let cause = unknown_or_not_yet.map(Option::unwrap_or_default);
                cause.unwrap_or_else(|error| error.to_string())
            }
            Err(_) => "mysqld does not answer".to_owned(),
        };
        self.go(SupervisorState::Draining { cause });
        tokio::time::sleep(POLL.min(left)).await;
    }

    async fn ask(&mut self, id: ProcessId) {
        info!(pid = id.0, "mysqld is asked to stop");
        self.go(SupervisorState::Stopping { pid: id });
        if let Some(guard) = self.guard.clone() {
            guard.before_stop().await;
        }
        // mysqld would wait ten seconds for sessions to end.
        close_sessions(&self.options.account).await;
        let asked = match &self.options.external {
            Some(external) => external.stop(STOP_LIMIT).await,
            None => process::ask(id).map_err(SupervisorError::from),
        };
        if let Err(cause) = asked {
            warn!(pid = id.0, "mysqld cannot be asked to stop: {cause}");
        }
        if let Some(stopping) = &mut self.stopping {
            stopping.asked = Some(Instant::now());
        }
    }

    async fn kill(&mut self, id: ProcessId) {
        self.go(SupervisorState::Stopping { pid: id });
        // The kill is repeated while the server's disk stalls, and logged once.
        if self.killed.replace(id) != Some(id) {
            warn!(pid = id.0, "mysqld is killed");
        }
        let server = self.server.as_ref();
        let wrapper = server.and_then(|server| child_id(server.child.as_ref()?));
        // The kill command may not find the process yet, because mysqld writes its pid file late.
        let identity = self.identity(id);
        let unguarded = server.is_none() && self.guarded.is_some_and(|known| known != identity);
        let killed = match (&self.options.external, wrapper) {
            (Some(_), _) if unguarded && identity.began.is_some() && process::kill(id).is_ok() => {
                Ok(())
            }
            (Some(external), _) => external.kill().await,
            (None, Some(wrapper)) => {
                let inner = process::kill(id);
                let group = process::kill_group(wrapper);
                group.or(inner).map_err(SupervisorError::from)
            }
            (None, None) => self.options.kill().await,
        };
        if let Err(cause) = killed {
            warn!(pid = id.0, "mysqld cannot be killed: {cause}");
        }
        self.something_changes().await;
    }

    pub(super) fn fail(&mut self, cause: String) {
        let wait = self.backoff.fail();
        error!(retry_in = ?wait, "{cause}");
        self.not_before = Some(Instant::now() + wait);
        self.go(SupervisorState::Failed { cause });
    }

    pub(super) fn runs(&self, pid: ProcessId, adopted: bool) {
        self.go(SupervisorState::Running { pid, adopted });
    }

    /// True if the state has changed.
    pub(super) fn go(&self, state: SupervisorState) -> bool {
        self.status.send_if_modified(|status| {
            let changed = status.state != state;
            if changed {
                status.state = state;
                status.since = Instant::now();
            }
            changed
        })
    }
}

// Before mysqld is asked to stop: closes it for writes, and waits until commits have their ACK.

/// Time limit for closing the sessions. The stop also works without closing them.
const CLOSING_LIMIT: Duration = Duration::from_secs(2);

/// Closes the sessions of all clients, including administrators, on a server that is closed for writes and is about to stop. Dumps stay
/// open: the server sends their remaining events while it stops.
async fn close_sessions(account: &ConnectOptions) {
    let closed = async {
        let mut connection = Connection::open_with_own_settings(account).await?;
        end_clients(&mut connection, |_, command| !is_a_dump(command)).await?;
        connection.close().await;
        Ok::<(), LinkError>(())
    };
    let closed = tokio::time::timeout(CLOSING_LIMIT, closed).await;
    if !matches!(closed, Ok(Ok(()))) {
        tracing::debug!(
            ?closed,
            "clients' sessions are not closed before mysqld stops"
        );
    }
}

/// Closes the server. Returns `None` if no commit waits and none can begin to wait; otherwise the cause.
async fn drain(account: &ConnectOptions) -> Result<Option<String>, LinkError> {
    // Also sets the variable if it already reads ON. It does so as soon as a `SET` begins, but takes effect only when that `SET` has
    // succeeded.
    if let Err(error) = read_only::close(account, Duration::from_secs(1)).await {
        return match error {
            ReadOnlyError::Link(error @ LinkError::Unreachable { .. }) => Err(error),
            other => Ok(Some(other.to_string())),
        };
    }
    let mut connection = Connection::open_with_own_settings(account).await?;
    let observed = observe(&mut connection, Depth::Watch).await?;
    connection.close().await;
    let waiting = observed.waiting_sessions();
    Ok(match (observed.is_super_read_only(), waiting) {
        (true, 0) => None,
        (true, _) => Some(format!("{waiting} sessions wait for an ACK")),
        (false, _) => Some("another session opens it for writes".to_owned()),
    })
}
