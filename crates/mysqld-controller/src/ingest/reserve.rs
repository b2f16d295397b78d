//! A session in reserve beside a running dump. While a statement about accounts waits for its ACK, mysqld lets nobody log in: a
//! dump that breaks then can only be begun again by a session that is there already.

use std::convert::Infallible;
use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use mysql_link::{ConnectOptions, Connection, LinkError, Timeouts};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::ingest::awaited_acks::AwaitedAcks;
use crate::ingest::error::IngestError;
use crate::ingest::session::DUMPS;
use crate::ring::Ring;
use crate::session_limit::within_the_limit;
use crate::settings::{ApplyError, SemiSyncNames, await_acks};

/// From one sign of life to the next; well below any sensible `wait_timeout`.
const ALIVE_EVERY: Duration = Duration::from_secs(3);
/// From an attachment to the first session.
const BEHIND_THE_OPENING: Duration = Duration::from_millis(500);
/// From a number of ACKs that could not be set to the next attempt.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long an ordinary attachment may take where a reserve waits for its turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sessions of the mysqld that was attached to last, one for each dump. A session ends with its mysqld, so that whatever was
/// seen of that start is so as long as the session answers.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    sessions: Vec<Connection>,
    /// What the semi-sync plugin of that mysqld is called.
    names: Option<SemiSyncNames>,
    /// Whether `SET GLOBAL` goes on there while a statement about accounts waits.
    sets_at_any_time: bool,
}

/// What has to be known before a dump begins, asked for without a lock that a statement about accounts holds.
pub(super) struct Quick {
    /// Whether commits wait for an ACK.
    pub(super) commits_wait: bool,
    /// The checksum algorithm of its binlog.
    pub(super) checksum: ChecksumAlgorithm,
}

impl Reserve {
    /// Notes what the server is like that was attached to.
    pub(super) fn attached(&mut self, names: SemiSyncNames, sets_at_any_time: bool) {
        self.names = Some(names);
        self.sets_at_any_time = sets_at_any_time;
    }

    /// Keeps sessions open: opens one where there is none, and another one behind one that the server ended. By one of them it
    /// sets the number of ACKs for which commits wait.
    pub(super) async fn keep<R: Ring>(
        &mut self,
        connect: &ConnectOptions,
        mut acks: AwaitedAcks<'_, R>,
    ) -> Infallible {
        let connect = ConnectOptions {
            program_name: "witness-reserve".to_owned(),
            ..connect.clone()
        };
        // Behind the attachment, the opening of the primary comes first.
        let mut next = Instant::now() + BEHIND_THE_OPENING;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {
                    self.refill(&connect).await;
                    next = Instant::now() + ALIVE_EVERY;
                }
                acks_wanted = acks.due(self.sets_at_any_time) => {
                    match self.await_acks(&connect, acks_wanted).await {
                        Ok(()) => acks.set(acks_wanted),
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
            // That there is none costs nothing before it is needed, and then the dump is begun in the ordinary way.
            match within_the_limit(connect).await {
                Ok(Some(session)) => self.sessions.push(session),
                Ok(None) | Err(_) => break,
            }
        }
    }

    async fn await_acks(&mut self, connect: &ConnectOptions, acks: u32) -> Result<(), LinkError> {
        let names = self.names.unwrap_or(SemiSyncNames::Source);
        if let Some(session) = self.sessions.first_mut() {
            return await_acks(session, names, acks).await;
        }
        let mut session = Connection::open(connect).await?;
        await_acks(&mut session, names, acks).await?;
        session.close().await;
        Ok(())
    }

    /// How long the ordinary way may take at each step.
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

    /// The sessions to attach by, where an attachment in the ordinary way failed so.
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

/// Asks for what a dump needs to know.
pub(super) async fn quick_look(
    session: &mut Connection,
    names: SemiSyncNames,
) -> Result<Quick, LinkError> {
    let enabled = names.enabled();
    let query = format!("SELECT @@GLOBAL.{enabled}, @@GLOBAL.binlog_checksum");
    let answer = session.query(query).await?;
    let text = |column| answer.first().and_then(|row| row.text_at(column));
    Ok(Quick {
        commits_wait: text(0).is_some_and(crate::settings::says_on),
        checksum: checksum(text(1)),
    })
}

/// What the server's `binlog_checksum` says.
pub(super) fn checksum(variable: Option<&str>) -> ChecksumAlgorithm {
    match variable {
        Some("NONE") => ChecksumAlgorithm::None,
        _ => ChecksumAlgorithm::Crc32,
    }
}

/// Whether the server lives and did not come to an answer.
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
