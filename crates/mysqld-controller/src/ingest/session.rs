//! One attachment to the primary, from its connection to its end.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::TransactionFramer;
use binlog_format::gtid::{GtidSet, SourceId, parse_gtid_owned};
use bytes::Bytes;
use mysql_link::{
    ConnectOptions, Connection, DumpOptions, LinkError, ReplicationStream, server_code,
};
use mysqld_server::settings::{
    Check, Depth, Grants, MEMBER_ACKS, Observed, Phase, Plan, SemiSyncNames, Severity,
    UNREACHABLE_ACKS, apply, await_acks, checksum_named, observe, preflight,
};
use raft_types::{MAX_TRANSACTION_BYTES, ProposalSequence, Term};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::ingest::ack_ledger::AckLedger;
use crate::ingest::acking::{AwaitedAcks, DUMPS, Waiting};
use crate::ingest::attachment::{Attachment, EarlierLooks, PrimaryGtids};
use crate::ingest::reading::{IngestOptions, Reading, Shared, permits};
use crate::ingest::reserve::{Reserve, quick_look};
use crate::ingest::status::{IngestError, IngestFigures};
use crate::ring::{Ring, RingLog};

/// Maximum number of entries in the queue between reading and acknowledging; their bytes are limited separately.
const QUEUE: usize = 4096;

/// How long an observation of the primary is valid. The watcher detects later changes before clients are admitted.
pub(super) const LOOK_LASTS: Duration = Duration::from_secs(1);

/// A primary that is connected and inspected, and whose settings are unchanged.
pub(super) struct Prospect {
    pub(super) connection: Connection,
    observed: Observed,
    looked_at: Instant,
}

impl Prospect {
    /// Opens a session on the primary and reads its settings.
    pub(super) async fn look(connect: &ConnectOptions) -> Result<Self, IngestError> {
        let mut connection = Connection::open_with_own_settings(connect).await?;
        let looked_at = Instant::now();
        let observed = observe(&mut connection, Depth::Preflight).await?;
        Ok(Self {
            connection,
            observed,
            looked_at,
        })
    }
}

/// An established attachment.
pub(super) struct Session {
    stream: ReplicationStream,
    /// The dump that only acknowledges.
    second: ReplicationStream,
    /// The session that makes commits wait once the ring has caught up.
    control: Option<Connection>,
    log: RingLog,
    checksum: ChecksumAlgorithm,
    pub(super) attachment: Attachment,
    /// True if commits already waited before this attachment.
    waits_already: bool,
    /// The primary's state before its setup, with the time of the observation.
    seen: Option<(Observed, Instant)>,
}

impl Session {
    /// Connects, sets the primary up without making commits wait, compares it with the ring, and starts the dump. Uses only one connection:
    /// if clients have taken all others, a privileged account gets only one more.
    ///
    /// If this hangs, for example while a statement about accounts waits for its ACK, a reserve session becomes the dump without the
    /// hanging queries. Their answers were valid when this start of mysqld was last attached to. The watcher checks from its next
    /// observation on that they still are, as for an attachment that continues; until then the write fence opens nothing. This path queries
    /// only whether commits wait.
    pub(super) async fn open<R: Ring>(
        ring: &R,
        options: &IngestOptions,
        reserve: &mut Reserve,
        prospect: Option<Prospect>,
        earlier: &mut EarlierLooks,
    ) -> Result<Self, IngestError> {
        match Self::log_in(ring, options, reserve, prospect, earlier).await {
            Err(failure) => match reserve.after(&failure) {
                Some((sessions, names)) => {
                    Self::take(ring, options, sessions, names, earlier).await
                }
                None => Err(failure),
            },
            opened => opened,
        }
    }

    async fn take<R: Ring>(
        ring: &R,
        options: &IngestOptions,
        [mut session, second]: [Connection; DUMPS],
        names: SemiSyncNames,
        earlier: &mut EarlierLooks,
    ) -> Result<Self, IngestError> {
        let (commits_wait, checksum) = quick_look(&mut session, names).await?;
        if !commits_wait {
            let reason = "commits no longer wait for the ring, and this cannot be set now";
            return Err(unreadable("semi-sync setting")(reason));
        }
        let mut dumps = dump_options(options);
        dumps[0].register = false;
        Self::begin(ring, dumps, [session, second], checksum, true, earlier).await
    }

    async fn log_in<R: Ring>(
        ring: &R,
        options: &IngestOptions,
        reserve: &mut Reserve,
        prospect: Option<Prospect>,
        earlier: &mut EarlierLooks,
    ) -> Result<Self, IngestError> {
        let connect = ConnectOptions {
            timeouts: reserve.patience(options.connect.timeouts),
            ..options.connect.clone()
        };
        let Prospect {
            mut connection,
            mut observed,
            looked_at,
        } = match prospect {
            Some(prospect) => prospect,
            None => Prospect::look(&connect).await?,
        };
        observed.compare_place(options.requirements.binlog.as_ref());
        set_up(&mut connection, &observed, options).await?;
        let [second, control] = further_sessions(&mut connection, &connect).await?;
        let names = observed.semi_sync();
        let grants = observed.grants.as_ref();
        let sets_at_any_time = grants.is_some_and(Grants::sets_variables_at_any_time);
        let installed = names.unwrap_or_else(|| SemiSyncNames::of_version(observed.version));
        let waits_already = names.is_some_and(|names| observed.is_on(&names.enabled()));
        let checksum = checksum_named(observed.variable("binlog_checksum"));
        let dumps = dump_options(options);
        let connections = [connection, second];
        let mut session =
            Self::begin(ring, dumps, connections, checksum, waits_already, earlier).await?;
        session.control = Some(control);
        // If a plugin was installed since, the observation lacks its variables.
        session.seen = names.map(|_| (observed, looked_at));
        (reserve.names, reserve.sets_at_any_time) = (Some(installed), sets_at_any_time);
        Ok(session)
    }

    /// Compares the primary with the ring, and starts the dumps.
    async fn begin<R: Ring>(
        ring: &R,
        [mut dump, mut second]: [DumpOptions; DUMPS],
        [mut connection, acknowledges]: [Connection; DUMPS],
        checksum: ChecksumAlgorithm,
        waits_already: bool,
        earlier: &mut EarlierLooks,
    ) -> Result<Self, IngestError> {
        let log = ring.log().await?;
        let primary = primary_gtids(&mut connection).await?;
        let attachment = earlier.attach(&primary, &log.gtids)?;
        dump.have.clone_from(&attachment.have);
        second.have.clone_from(&attachment.have);
        let (stream, second) = tokio::try_join!(
            ReplicationStream::start(connection, &dump),
            ReplicationStream::start(acknowledges, &second)
        )?;
        Ok(Self {
            stream,
            second,
            control: None,
            log,
            checksum,
            attachment,
            waits_already,
            seen: None,
        })
    }

    /// Runs until an error or the end of the leadership, then closes the connection immediately. Calls `caught_up` once the ring has
    /// received all earlier transactions of the primary and commits wait. If commits waited earlier, they would also wait for those
    /// transactions. Returns the reason of the end, and the tickets with an unknown outcome.
    pub(super) async fn run<R: Ring>(
        self,
        ring: &R,
        term: Term,
        options: &IngestOptions,
        figures: &IngestFigures,
        caught_up: impl Fn(),
        reserve: &mut Reserve,
    ) -> (IngestError, Vec<R::Ticket>) {
        let (waits_already, seen, control) = (self.waits_already, self.seen, self.control);
        let (events, first) = self.stream.split();
        let (discarded, second) = self.second.split();
        let (entries, inbox) = mpsc::channel(QUEUE);
        let all_permits = permits(options.in_flight_bytes, u32::MAX);
        let shared = Shared {
            figures,
            observer: options.observer.as_deref(),
            in_flight: Semaphore::new(all_permits as usize),
            all_permits,
            rotating: AtomicU64::new(0),
            awaits: AtomicBool::new(!self.attachment.awaited.is_over()),
            caught_up: Notify::new(),
        };
        let mut waiting = Waiting {
            ledger: AckLedger::default(),
            inbox,
        };
        // A session keeps the limit that was in force at its first write, so it may commit more than the operator's present limit. The ring
        // accepts such transactions.
        let framer = TransactionFramer::new(self.checksum, MAX_TRANSACTION_BYTES)
            .spilling(options.spill.clone());
        let reading = Reading {
            ring,
            term,
            events,
            framer,
            sequence_number: self.log.sequence_number,
            log: self.log,
            sequence: ProposalSequence::default(),
            unproposed: self.attachment.unproposed,
            awaited: self.attachment.awaited,
            received: GtidSet::new(),
            file_limits: options.file_limits,
            upstream_format: Bytes::new(),
            alone: 0,
            entries,
            shared: &shared,
        };
        let (told, made_to_wait) = oneshot::channel();
        let acks = AwaitedAcks {
            ring,
            term,
            figures,
            changes: ring.changes(),
            made_to_wait,
            awaited: None,
        };
        let catching_up = tell_when_commits_wait(
            async {
                shared.caught_up.notified().await;
                ring.serves().await;
            },
            async {
                match make_commits_wait(options, seen, control).await {
                    // This step needs a connection, and clients may have taken all of them.
                    Err(error) if waits_already => {
                        warn!(
                            "the primary could not be observed again, which is left to the watch: {error}"
                        );
                        Ok(UNREACHABLE_ACKS)
                    }
                    made => made.map(|()| MEMBER_ACKS),
                }
            },
            |acks| {
                let _ = told.send(acks);
                caught_up();
            },
        );
        // One task runs both sides: a commit wakes it, and the ACK is sent without another task switch.
        let end = tokio::select! {
            biased;
            () = ring.leadership_over(term) => IngestError::LeadershipOver,
            Err(error) = waiting.run([second, first], ring.committed(), &shared) => error,
            Err(error) = reading.run() => error,
            Err(error) = catching_up => error,
            error = discarded.discard() => error.into(),
            never = reserve.keep(&options.connect, acks) => match never {},
        };
        figures.oldest(None);
        (end, waiting.into_tickets())
    }
}

/// Waits until the ring has caught up, makes commits wait, and reports for how many ACKs. The report opens the primary. So if commits
/// cannot be made to wait, the attachment ends and is retried.
async fn tell_when_commits_wait(
    caught_up: impl Future<Output = ()>,
    make_commits_wait: impl Future<Output = Result<u32, IngestError>>,
    tell: impl FnOnce(u32),
) -> Result<Infallible, IngestError> {
    caught_up.await;
    tell(make_commits_wait.await?);
    std::future::pending().await
}

/// Makes commits wait. The member now acknowledges them.
async fn make_commits_wait(
    options: &IngestOptions,
    seen: Option<(Observed, Instant)>,
    control: Option<Connection>,
) -> Result<(), IngestError> {
    let mut connection = match control.filter(Connection::is_usable) {
        Some(control) => control,
        None => Connection::open_with_own_settings(&options.connect).await?,
    };
    let requirements = &options.requirements;
    let (observed, done) = match seen.filter(|(_, at)| at.elapsed() < LOOK_LASTS) {
        Some((observed, _)) => {
            let done = Plan::make(&observed, requirements, Phase::BeforeAttach);
            (observed, done)
        }
        None => (
            observe(&mut connection, Depth::Watch).await?,
            Plan::default(),
        ),
    };
    let plan = Plan::make(&observed, requirements, Phase::Attached).after(&done);
    apply(&mut connection, &plan).await?;
    // The number is set last. ACKs of other replicas for waiting commits may have arrived and count, but the ring now has all those
    // transactions.
    let names = observed
        .semi_sync()
        .unwrap_or_else(|| SemiSyncNames::of_version(observed.version));
    await_acks(&mut connection, names, MEMBER_ACKS).await?;
    connection.close().await;
    Ok(())
}

async fn set_up(
    control: &mut Connection,
    observed: &Observed,
    options: &IngestOptions,
) -> Result<(), IngestError> {
    let requirements = &options.requirements;
    let mut findings = preflight(observed, requirements);
    for finding in &findings {
        if matches!(
            finding.check,
            Check::AccountExpires
                | Check::BinlogPlace
                | Check::ReplicaUpdates
                | Check::ShutdownPrivilege
        ) {
            warn!("{finding}");
        }
    }
    findings.retain(|finding| finding.severity == Severity::Blocks);
    if !findings.is_empty() {
        return Err(IngestError::NotSetUp { findings });
    }
    let plan = Plan::make(observed, requirements, Phase::BeforeAttach);
    Ok(apply(control, &plan).await?)
}

/// Opens sessions for the second dump, and for settings once the ring has caught up. If clients have taken all connections, `first` is the
/// extra administrator session, and raises `max_connections` for a moment.
async fn further_sessions(
    first: &mut Connection,
    connect: &ConnectOptions,
) -> Result<[Connection; 2], LinkError> {
    let both = async || {
        let open = || Connection::open_with_own_settings(connect);
        tokio::try_join!(open(), open()).map(|(second, control)| [second, control])
    };
    let full = match both().await {
        Err(error) if error.server_code() == Some(server_code::TOO_MANY_CONNECTIONS) => error,
        opened => return opened,
    };
    let limit = first.query("SELECT @@GLOBAL.max_connections").await?;
    let limit = limit.value().and_then(|value| value.parse().ok());
    let limit: u64 = limit.ok_or(full)?;
    let set = |limit| format!("SET GLOBAL max_connections = {limit}");
    first.execute(&set(limit + 2)).await?;
    let opened = both().await;
    first.execute(&set(limit)).await?;
    opened
}

/// How long [`raise_acks`] may take, since the next leadership waits for it.
const RAISE_LIMIT: Duration = Duration::from_millis(500);

/// Makes commits wait for more ACKs than replicas send, after the member has detached from the primary. If the primary does not answer, the
/// number stays at the member's two.
pub(super) async fn raise_acks(connect: &ConnectOptions) {
    let connect = connect.clone().bounded("witness-ingest", RAISE_LIMIT);
    let raise = async {
        let mut connection = Connection::open(&connect).await?;
        for names in [SemiSyncNames::Source, SemiSyncNames::Master] {
            let enabled = format!("SELECT @@GLOBAL.{}", names.enabled());
            let enabled = match connection.query(enabled).await {
                Err(LinkError::Server(error))
                    if error.code == server_code::UNKNOWN_SYSTEM_VARIABLE =>
                {
                    continue;
                }
                answer => answer?,
            };
            if enabled.value() == Some("1") {
                await_acks(&mut connection, names, UNREACHABLE_ACKS).await?;
            }
        }
        connection.close().await;
        Ok::<(), LinkError>(())
    };
    let raised = tokio::time::timeout(RAISE_LIMIT, raise).await;
    if !matches!(raised, Ok(Ok(()))) {
        debug!(?raised, "commits wait for {MEMBER_ACKS} ACKs");
    }
}

async fn primary_gtids(control: &mut Connection) -> Result<PrimaryGtids, IngestError> {
    // `gtid_owned` is read first, so that a transaction that commits in between appears in one of the two variables.
    let owned = text(control, "gtid_owned").await?;
    let executed = text(control, "gtid_executed").await?;
    let purged = text(control, "gtid_purged").await?;
    let server = text(control, "server_uuid").await?;
    Ok(PrimaryGtids {
        executed: executed.parse().map_err(unreadable("gtid_executed"))?,
        owned: parse_gtid_owned(&owned).map_err(unreadable("gtid_owned"))?,
        purged: purged.parse().map_err(unreadable("gtid_purged"))?,
        server: SourceId(server.parse().map_err(unreadable("server_uuid"))?),
    })
}

fn unreadable<E: ToString>(what: &'static str) -> impl FnOnce(E) -> IngestError {
    move |error| IngestError::Unreadable {
        what,
        reason: error.to_string(),
    }
}

async fn text(control: &mut Connection, what: &'static str) -> Result<String, IngestError> {
    let result = control.query(&format!("SELECT @@GLOBAL.{what}")).await?;
    let value = result.value().map(str::to_owned);
    value.ok_or_else(|| unreadable(what)("it is no text"))
}

/// Returns the options of the dump that is read, and of the dump that only acknowledges.
fn dump_options(options: &IngestOptions) -> [DumpOptions; DUMPS] {
    let requirements = &options.requirements;
    let (second_id, second_uuid) = requirements.second_replica();
    let dump = |server_id, uuid| DumpOptions {
        heartbeat: options.heartbeat,
        silence_limit: options.silence_limit,
        report_host: options.report_host.clone(),
        spill: options.spill.clone(),
        ..DumpOptions::new(server_id, uuid, GtidSet::default())
    };
    let first = dump(requirements.replica_server_id, requirements.replica_uuid);
    let second = DumpOptions {
        register: false,
        ..dump(second_id, second_uuid)
    };
    [first, second]
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn nobody_is_told_where_commits_cannot_be_made_to_wait() {
        let told = Cell::new(false);
        let tell = |_| told.set(true);
        let refused = async { Err(IngestError::LeadershipOver) };
        let ended = tell_when_commits_wait(std::future::ready(()), refused, tell).now_or_never();
        assert!(matches!(ended, Some(Err(IngestError::LeadershipOver))));
        assert!(!told.get());
        let done = async { Ok(MEMBER_ACKS) };
        let goes_on = tell_when_commits_wait(std::future::ready(()), done, tell).now_or_never();
        assert!(goes_on.is_none() && told.get());
    }
}
