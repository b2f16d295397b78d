//! Replica threads with one channel. They receive the transactions of a source and apply them with their GTIDs. A named channel reads from
//! a [`ReplicaSource`], and the unnamed one from another server's dump ([`crate::plain_source`]).

use std::time::Duration;

use binlog_format::event::RawEvent;
use binlog_format::events::{EventOrigin, GtidEvent};
use binlog_format::gtid::{Gtid, GtidSet};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::answers::{Answer, SqlError, code};
use crate::options::Rights;
use crate::process::Mysqld;
use crate::server::Server;
use crate::sessions::{Content, Session, SessionId, Work, Write};
use crate::statement::{SourceChange, Value};
use crate::writing::lock_order;

/// The source of a named channel, used instead of the host and port in `CHANGE REPLICATION SOURCE`.
pub trait ReplicaSource: Send + Sync {
    /// Returns the transactions that `have` lacks, as canonical payloads, and then later transactions as they are committed. An error is a
    /// lost connection; the channel tries again.
    fn open(&self, have: GtidSet) -> BoxStream<'static, Result<Bytes, String>>;
}

/// The user name of replica threads in the process list.
pub(crate) const USER: &str = "system user";
/// `SOURCE_CONNECT_RETRY`.
const RETRY: Duration = Duration::from_secs(1);
/// The client's error code for an unreachable source.
const UNREACHABLE: u16 = 2003;

/// A replication channel. It survives the process.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) source: SourceSettings,
    /// The UUID of the source. Empty before the first connection.
    pub(crate) source_uuid: String,
    pub(crate) receiver: Receiver,
    pub(crate) receiver_error: Option<SqlError>,
    pub(crate) applies: bool,
    pub(crate) applier_error: Option<SqlError>,
    /// The original commit time of the current transaction, in microseconds since 1970.
    pub(crate) in_hand: Option<u64>,
    /// The session of the applier.
    session: Option<SessionId>,
    /// The number of starts of the channel.
    run: u64,
}

impl Channel {
    fn is_plain(&self) -> bool {
        self.name.is_empty()
    }
}

/// The source of a channel, as set with `CHANGE REPLICATION SOURCE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceSettings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: String,
}

impl SourceSettings {
    /// Changes the source. Ignores all options except those for the login: a channel always follows by GTIDs, and retries every second.
    fn change(&mut self, options: Vec<(String, Value)>) {
        for (name, value) in options {
            match (&name[..], value) {
                ("SOURCE_HOST", Value::Text(host)) => self.host = host,
                ("SOURCE_PORT", Value::Number(port)) => {
                    self.port = u16::try_from(port).unwrap_or(u16::MAX);
                }
                ("SOURCE_USER", Value::Text(user)) => self.user = user,
                ("SOURCE_PASSWORD", Value::Text(password)) => self.password = password,
                _ => {}
            }
        }
    }
}

/// The state of the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Receiver {
    #[default]
    Off,
    Connecting,
    On,
}

impl Session {
    pub(crate) fn is_replica_thread(&self) -> bool {
        self.user == USER
    }
}

impl Server {
    /// Returns the channel with this name. Without a name, returns the existing channel, or `None` if there is none.
    fn channel(&mut self, name: Option<&str>) -> Result<Option<&mut Channel>, SqlError> {
        let Some(name) = name else {
            return Ok(self.channel.as_mut());
        };
        let found = self.channel.as_mut().filter(|channel| channel.name == name);
        found.map(Some).ok_or_else(|| {
            let message = format!("Replica channel '{name}' does not exist.");
            SqlError::new(3074, message)
        })
    }

    pub(crate) fn change_source(&mut self, change: SourceChange) -> Result<Answer, SqlError> {
        let SourceChange {
            channel: name,
            options,
        } = change;
        let mut source = SourceSettings::default();
        match &self.channel {
            Some(channel) if channel.name != name => {
                let own = &channel.name;
                self.unknown
                    .push(format!("a channel '{name}' beside '{own}'"));
                let message = "the model has one channel";
                return Err(SqlError::new(code::PARSE, message));
            }
            Some(channel) if channel.receiver != Receiver::Off => return Err(must_stop(&name)),
            Some(channel) => source = channel.source.clone(),
            None => {}
        }
        source.change(options);
        self.put_channel(Some((name, source)));
        Ok(Answer::Done(0))
    }

    /// Replaces the channel. The threads of the new channel are stopped.
    pub(crate) fn put_channel(&mut self, channel: Option<(String, SourceSettings)>) {
        let run = self.channel.as_ref().map_or(0, |channel| channel.run);
        self.channel = channel.map(|(name, source)| Channel {
            name,
            source,
            run,
            ..Channel::default()
        });
    }

    pub(crate) fn start_replica(
        &mut self,
        receiver_only: bool,
        name: Option<&str>,
    ) -> Result<Answer, SqlError> {
        let Some(channel) = self.channel(name)? else {
            let message = "The server is not configured as replica; fix in config file or with CHANGE REPLICATION SOURCE TO";
            return Err(SqlError::new(1200, message));
        };
        channel.run += 1;
        channel.receiver_error = None;
        if channel.receiver == Receiver::Off {
            channel.receiver = Receiver::Connecting;
        }
        if receiver_only {
            let applies = channel.applies;
            if !applies {
                // No applier would read the received transactions.
                self.unknown
                    .push("START REPLICA IO_THREAD without an applier".to_owned());
            }
            self.changed();
            return Ok(Answer::Done(0));
        }
        let session = self.open_session(USER, Rights::All);
        let Some(channel) = self.channel(name)? else {
            return Ok(Answer::Done(0));
        };
        channel.applier_error = None;
        channel.applies = true;
        let before = std::mem::replace(&mut channel.session, session);
        if let Some(before) = before {
            self.kill_session(before);
        }
        self.changed();
        Ok(Answer::Done(0))
    }

    /// Stops the receiver immediately, and the applier after its current transaction.
    pub(crate) fn begin_stop_replica(
        &mut self,
        id: SessionId,
        receiver_only: bool,
        name: Option<&str>,
    ) {
        match self.channel(name) {
            Err(error) => self.finish(id, Err(error)),
            Ok(None) => self.finish(id, Ok(Answer::Done(0))),
            Ok(Some(channel)) => {
                channel.receiver = Receiver::Off;
                channel.receiver_error = None;
                channel.run += 1;
                if receiver_only {
                    return self.finish(id, Ok(Answer::Done(0)));
                }
                self.set_work(id, Work::StopReplica);
                self.changed();
                self.advance_stop_replica(id);
            }
        }
    }

    pub(crate) fn advance_stop_replica(&mut self, id: SessionId) {
        let applier = self.channel.as_ref().and_then(|channel| channel.session);
        let busy = |applier| {
            self.session(applier)
                .is_some_and(|session| !session.is_idle())
        };
        if applier.is_some_and(busy) {
            return;
        }
        if let Some(applier) = applier {
            self.kill_session(applier);
        }
        if let Some(channel) = &mut self.channel {
            channel.session = None;
            channel.applies = false;
            channel.in_hand = None;
        }
        self.finish(id, Ok(Answer::Done(0)));
    }

    pub(crate) fn reset_replica(
        &mut self,
        name: Option<&str>,
        all: bool,
    ) -> Result<Answer, SqlError> {
        let Some(channel) = self.channel(name)? else {
            return Ok(Answer::Done(0));
        };
        let name = channel.name.clone();
        if channel.receiver != Receiver::Off || channel.applies {
            return Err(must_stop(&name));
        }
        if all {
            self.channel = None;
        }
        Ok(Answer::Done(0))
    }

    /// Resets the channel's state after the end of the process. The settings remain.
    pub(crate) fn end_replication(&mut self) {
        self.channel = self.channel.take().map(|channel| Channel {
            name: channel.name,
            source: channel.source,
            source_uuid: channel.source_uuid,
            run: channel.run + 1,
            ..Channel::default()
        });
    }

    /// Returns the result of the applier's last transaction. `None`: the applier is still busy. An error stops the applier.
    fn applied(&mut self) -> Option<Result<(), ()>> {
        let id = self.channel.as_ref()?.session?;
        let session = self.session(id)?;
        if !session.is_idle() {
            return None;
        }
        let answer = session.answer.take();
        let channel = self.channel.as_mut()?;
        channel.in_hand = None;
        match answer {
            Some(Err(error)) => {
                channel.applies = false;
                channel.applier_error = Some(error);
                channel.session = None;
                self.kill_session(id);
                Some(Err(()))
            }
            _ => Some(Ok(())),
        }
    }

    /// Begins to apply a transaction. Does nothing if it is already executed.
    fn apply(&mut self, payload: Bytes) -> Result<(), SqlError> {
        let head = head(&payload).map_err(|why| SqlError::new(1594, why));
        let (gtid, committed) = head?;
        let rows = crate::lists::rows_of(&payload).unwrap_or_default();
        let Some(running) = &self.running else {
            return Ok(());
        };
        if running.executed.contains(&gtid) || running.commits.owned().any(|(own, _)| own == gtid) {
            return Ok(());
        }
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        channel.in_hand = Some(committed);
        let Some(id) = channel.session else {
            return Ok(());
        };
        let write = Write {
            locks: lock_order(rows.iter().map(|row| row.list)),
            content: Content::Applied { gtid, payload },
            commits: true,
            ..Write::default()
        };
        self.begin_write(id, write);
        Ok(())
    }

    pub(crate) fn runs(&self, run: u64) -> Option<&Channel> {
        let channel = self.channel.as_ref()?;
        (channel.run == run && channel.receiver != Receiver::Off).then_some(channel)
    }
}

fn must_stop(name: &str) -> SqlError {
    let message = format!(
        "This operation cannot be performed with running replication threads; run STOP REPLICA FOR CHANNEL '{name}' first"
    );
    SqlError::new(3081, message)
}

/// Returns a transaction's GTID, and its original commit time in microseconds since 1970.
fn head(payload: &Bytes) -> Result<(Gtid, u64), String> {
    let mut rest = payload.clone();
    let first = RawEvent::split_from(&mut rest).map_err(|error| error.to_string())?;
    let first = first.ok_or("the transaction has no events")?;
    let event = GtidEvent::decode(first.canonical()).map_err(|error| error.to_string())?;
    let committed = event.original_commit.or(event.immediate_commit);
    let seconds = u64::from(EventOrigin::from(first.header()).timestamp);
    Ok((
        event.gtid,
        committed.map_or(seconds * 1_000_000, |time| time.0),
    ))
}

/// Marks the source as unreachable when it is dropped.
struct Away<'a>(&'a Mysqld, bool);

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.act(|server| {
            if let Some(channel) = &mut server.channel
                && channel.is_plain() == self.1
                && channel.receiver == Receiver::On
            {
                channel.receiver = Receiver::Connecting;
                channel.receiver_error = Some(unreachable("it is gone"));
            }
        });
    }
}

fn unreachable(why: &str) -> SqlError {
    SqlError::new(UNREACHABLE, format!("Error connecting to source: {why}"))
}

impl Mysqld {
    /// Runs the threads of a named channel. While the channel is started, it reads from `source` and applies. After the future is dropped,
    /// the source counts as unreachable.
    pub async fn run_replica_threads(&self, source: std::sync::Arc<dyn ReplicaSource>) {
        self.carry_threads(false, &*source).await;
    }

    pub(crate) async fn carry_threads(&self, plain: bool, source: &dyn ReplicaSource) {
        loop {
            let begun = self.until(|server| {
                if server.paused {
                    return None;
                }
                let channel = server.channel.as_ref();
                let run = channel.filter(|channel| channel.is_plain() == plain)?.run;
                server.runs(run)?;
                // The current transaction must complete before the next connection.
                server.applied()?.ok()?;
                let have = server.running.as_ref()?.executed.clone();
                if let Some(channel) = &mut server.channel {
                    channel.receiver = Receiver::On;
                    channel.receiver_error = None;
                }
                Some((run, have))
            });
            let (run, have) = begun.await;
            let away = Away(self, plain);
            let ended = self.follow(run, source.open(have)).await;
            self.act(|server| {
                if server.runs(run).is_some()
                    && let Some(channel) = &mut server.channel
                {
                    channel.receiver = Receiver::Connecting;
                    channel.receiver_error = ended.as_deref().map(unreachable);
                    server.changed();
                }
            });
            drop(away);
            if ended.is_some() {
                drop(tokio::time::timeout(RETRY, self.until_over(run)).await);
            }
        }
    }

    /// Waits until the threads are stopped or started again.
    async fn until_over(&self, run: u64) {
        self.until(|server| server.runs(run).is_none().then_some(()))
            .await
    }

    /// Applies transactions until the threads are stopped (`None`), or until the connection is lost; then returns the reason.
    async fn follow(
        &self,
        run: u64,
        mut stream: BoxStream<'static, Result<Bytes, String>>,
    ) -> Option<String> {
        loop {
            let next = tokio::select! {
                biased;
                () = self.until_over(run) => return None,
                next = stream.next() => next,
            };
            let payload = match next {
                None => return Some("it ended the connection".to_owned()),
                Some(Err(why)) => return Some(why),
                Some(Ok(payload)) => payload,
            };
            let mut payload = Some(payload);
            let goes_on = self.until(|server| {
                if server.runs(run).is_none() {
                    return Some(false);
                }
                if server.paused {
                    return None;
                }
                if let Some(payload) = payload.take() {
                    if let Err(error) = server.apply(payload)
                        && let Some(channel) = &mut server.channel
                    {
                        channel.applies = false;
                        channel.applier_error = Some(error);
                    }
                    server.advance();
                }
                Some(server.applied()?.is_ok())
            });
            if !goes_on.await {
                // After an error of the applier, the receiver stays connected, but nothing is applied.
                self.until_over(run).await;
                return None;
            }
        }
    }
}
