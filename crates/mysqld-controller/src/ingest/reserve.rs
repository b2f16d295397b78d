//! Reserve sessions for the dumps. While a statement about accounts waits for its ACK, mysqld accepts no logins. If a dump breaks at that
//! time, only an existing session can start it again.

use std::convert::Infallible;
use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use mysql_link::{ConnectOptions, Connection, LinkError, Timeouts};
use mysqld_server::sessions::spare_connection;
use mysqld_server::settings::{ApplyError, SemiSyncNames, await_acks, checksum_named, says_on};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::ingest::acking::{AwaitedAcks, DUMPS};
use crate::ingest::status::IngestError;
use crate::ring::Ring;

/// Keepalive interval; much shorter than any sensible `wait_timeout`.
const ALIVE_EVERY: Duration = Duration::from_secs(3);
/// Delay between an attachment and the first reserve session.
const BEHIND_THE_OPENING: Duration = Duration::from_millis(500);
/// Delay after a failure to set the number of ACKs.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Time limit of an ordinary attachment while reserve sessions exist.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sessions on the mysqld of the last attachment, one for each dump. A session ends with its mysqld. So as long as the session responds, it
/// is the same start of mysqld, and observations of that start are valid.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    sessions: Vec<Connection>,
    /// Names of that mysqld's semi-sync plugin.
    pub(super) names: Option<SemiSyncNames>,
    /// True if `SET GLOBAL` succeeds on that mysqld while a statement about accounts waits.
    pub(super) sets_at_any_time: bool,
}

impl Reserve {
    /// Keeps the reserve sessions open, and replaces those that the server ended. Uses one of them to set the number of ACKs that commits
    /// wait for.
    pub(super) async fn keep<R: Ring>(
        &mut self,
        connect: &ConnectOptions,
        mut acks: AwaitedAcks<'_, R>,
    ) -> Infallible {
        let connect = ConnectOptions {
            program_name: "witness-reserve".to_owned(),
            ..connect.clone()
        };
        // Opening the primary after an attachment comes first.
        let mut next = Instant::now() + BEHIND_THE_OPENING;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {
                    self.refill(&connect).await;
                    next = Instant::now() + ALIVE_EVERY;
                }
                acks_wanted = acks.due(self.sets_at_any_time) => {
                    match self.await_acks(&connect, acks_wanted).await {
                        Ok(()) => acks.awaited = Some(acks_wanted),
                        Err(error) => {
                            debug!("the number of ACKs was not set to {acks_wanted}: {error}");
                            self.sessions.retain(Connection::is_usable);
                            tokio::time::sleep(AGAIN_AFTER).await;
                        }
                    }
                }
            }
        }
    }

    async fn refill(&mut self, connect: &ConnectOptions) {
        let mut place = 0;
        while let Some(session) = self.sessions.get_mut(place) {
            match session.ping().await {
                Ok(_) => place += 1,
                Err(_) => drop(self.sessions.swap_remove(place)),
            }
        }
        while self.sessions.len() < DUMPS {
            // A missing session has no effect until it is needed. The dump then starts with an ordinary login.
            match spare_connection(connect).await {
                Ok(Some(session)) => self.sessions.push(session),
                Ok(None) | Err(_) => break,
            }
        }
    }

    /// Opens a session if there is none, and keeps it: while a statement about accounts waits, mysqld accepts no new session that could
    /// lower the number again.
    async fn await_acks(&mut self, connect: &ConnectOptions, acks: u32) -> Result<(), LinkError> {
        if self.sessions.is_empty() {
            self.sessions.push(Connection::open(connect).await?);
        }
        let names = self.names.unwrap_or(SemiSyncNames::Source);
        await_acks(&mut self.sessions[0], names, acks).await
    }

    /// Returns the time limits for an ordinary attachment.
    pub(super) fn patience(&self, ordinary: Timeouts) -> Timeouts {
        if self.sessions.len() < DUMPS {
            return ordinary;
        }
        Timeouts {
            lookup: ordinary.lookup.min(PATIENCE),
            connect: ordinary.connect.min(PATIENCE),
            statement: ordinary.statement.min(PATIENCE),
        }
    }

    /// Returns the sessions to attach with if the ordinary attachment timed out.
    pub(super) fn after(
        &mut self,
        failure: &IngestError,
    ) -> Option<([Connection; DUMPS], SemiSyncNames)> {
        let names = self.names.filter(|_| timed_out(failure))?;
        self.sessions.retain(Connection::is_usable);
        let sessions = std::mem::take(&mut self.sessions).try_into().ok()?;
        info!("the dumps are begun by the sessions in reserve: {failure}");
        Some((sessions, names))
    }

    pub(super) async fn end(self) {
        for session in self.sessions {
            session.close().await;
        }
    }
}

/// Queries the values that a dump needs before its start: whether commits wait for an ACK, and the checksum algorithm of the binlog. Takes
/// no lock that a statement about accounts holds.
pub(super) async fn quick_look(
    session: &mut Connection,
    names: SemiSyncNames,
) -> Result<(bool, ChecksumAlgorithm), LinkError> {
    let enabled = names.enabled();
    let query = format!("SELECT @@GLOBAL.{enabled}, @@GLOBAL.binlog_checksum");
    let answer = session.query(query).await?;
    let text = |column| answer.first().and_then(|row| row.text_at(column));
    Ok((text(0).is_some_and(says_on), checksum_named(text(1))))
}

/// True if the server is reachable and did not answer in time.
fn timed_out(failure: &IngestError) -> bool {
    matches!(
        failure,
        IngestError::Link(LinkError::Timeout { .. })
            | IngestError::Apply(ApplyError {
                source: LinkError::Timeout { .. },
                ..
            })
    )
}
