//! The reading side of an attachment: assembles transactions from events, and proposes them.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_format::event::HEADER_LEN;
use binlog_format::framing::{FramedTransaction, SourcePosition, StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use mysql_link::{ConnectOptions, DumpEvent, EventReader};
use mysqld_server::settings::Requirements;
use raft_types::{AppEntry, ProposalSequence, Rotate, Term, TransactionPayload};
use spilling_bytes::long_work;
use spilling_bytes::{Gathered, SpillFolder};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;
use tracing::info;

use crate::ingest::ack_ledger::{LedgerEntry, Wait};
use crate::ingest::attachment::Awaited;
use crate::ingest::status::{IngestError, IngestFigures};
use crate::ring::{CurrentFile, Ring, RingLog};

/// The number of bytes that one permit represents.
const PERMIT_BYTES: u64 = 1024;

/// State shared by the reading and the acknowledging side.
pub(super) struct Shared<'a> {
    pub(super) figures: &'a IngestFigures,
    pub(super) observer: Option<&'a dyn CommitObserver>,
    /// Permits for in-flight bytes; the acknowledging side returns them.
    pub(super) in_flight: Semaphore,
    pub(super) all_permits: u32,
    /// Rotations in flight.
    pub(super) rotating: AtomicU64,
    /// True while a transaction that waits on the primary has not arrived. Nothing may be acknowledged then, because an ACK covers all
    /// earlier transactions.
    pub(super) awaits: AtomicBool,
    /// Notified once, when the ring has caught up with the primary.
    pub(super) caught_up: Notify,
}

/// Returns the number of permits for some bytes. A transaction that needs more than `all` takes all permits, and is proposed alone.
pub(super) fn permits(bytes: u64, all: u32) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES))
        .unwrap_or(u32::MAX)
        .clamp(1, all)
}

/// Reads the stream of one attachment.
pub(super) struct Reading<'a, R: Ring> {
    pub(super) ring: &'a R,
    pub(super) term: Term,
    pub(super) events: EventReader,
    pub(super) framer: TransactionFramer,
    /// The log at the start of the attachment.
    pub(super) log: RingLog,
    /// Proposals of the attachment: in the primary's binlog order, without a gap.
    pub(super) sequence: ProposalSequence,
    /// Transactions that the primary had at the start and the log still lacks.
    pub(super) unproposed: GtidSet,
    /// Transactions that waited on the primary at the start, and must arrive.
    pub(super) awaited: Awaited,
    /// The GTIDs received in this attachment. A dump sends each GTID once.
    pub(super) received: GtidSet,
    pub(super) file_limits: FileLimits,
    pub(super) upstream_format: Bytes,
    /// The sequence number of the last transaction that was proposed, or is in the log's last file.
    pub(super) sequence_number: i64,
    /// Bytes of transactions that were proposed alone since the last rotation here. The member's own log may lag behind the ring, so the
    /// file's size does not include them yet.
    pub(super) alone: u64,
    pub(super) entries: mpsc::Sender<LedgerEntry<R::Ticket>>,
    pub(super) shared: &'a Shared<'a>,
}

impl<R: Ring> Reading<'_, R> {
    /// Reads until an error. May be cancelled at any point without losing a ticket: there is no await between a proposal and its ledger
    /// entry.
    pub(super) async fn run(mut self) -> Result<std::convert::Infallible, IngestError> {
        if self.unproposed.is_empty() {
            self.shared.caught_up.notify_one();
        }
        loop {
            let next = self.events.next().await?;
            self.take(next).await?;
        }
    }

    async fn take(&mut self, next: DumpEvent) -> Result<(), IngestError> {
        let DumpEvent { event, ack_wanted } = next;
        let bytes = event.bytes().len();
        let figures = self.shared.figures;
        figures.count(|figures| figures.received_bytes_total += bytes as u64);
        // The event is dropped there too. The transaction has copied its bytes, and freeing a large event also takes long.
        let framed = long_work::run(bytes, || {
            let event = event;
            self.framer.push(&event)
        });
        match framed? {
            // The transaction is not complete. The ACK for its end covers this event.
            None => Ok(()),
            Some(StreamItem::Transaction(transaction)) => self.transaction(transaction).await,
            Some(StreamItem::FormatDescription { canonical, .. }) => {
                self.upstream_format = canonical;
                self.wish(ack_wanted).await
            }
            Some(_) => self.wish(ack_wanted).await,
        }
    }

    async fn transaction(&mut self, transaction: FramedTransaction) -> Result<(), IngestError> {
        let came = Instant::now();
        let end = Some(transaction.end_position);
        if !self.received.add(transaction.gtid) {
            return Err(IngestError::SentAgain(transaction.gtid));
        }
        if !self.awaited.is_over() {
            self.awaited.came(&transaction.gtid)?;
            let awaits = !self.awaited.is_over();
            self.shared.awaits.store(awaits, Ordering::Release);
        }
        if self.log.gtids.contains(&transaction.gtid) {
            let wait = self.log.end.map_or(Wait::Nothing, Wait::Committed);
            return self.note(wait, end).await;
        }
        let bytes = transaction.payload.len();
        let payload = TransactionPayload::seal_gathered(Gathered {
            bytes: transaction.payload,
            crc32c: transaction.payload_crc32c,
        });
        let bytes = bytes as u64;
        let Some(room) = self.room(bytes).await else {
            return Ok(());
        };
        // Called after the wait for room: earlier transactions that were proposed alone are now in the file, or counted in `alone`.
        self.rotate_if_due(transaction.clock.sequence_number)
            .await?;
        if room == self.shared.all_permits {
            self.alone += bytes;
        }
        let entry = AppEntry::Transaction(payload);
        self.propose(entry, end, room, came).await?;
        self.sequence_number = transaction.clock.sequence_number;
        if self.unproposed.remove(&transaction.gtid) && self.unproposed.is_empty() {
            self.shared.caught_up.notify_one();
        }
        Ok(())
    }

    /// Proposes a rotation if one is due before the transaction with the sequence number `next`.
    async fn rotate_if_due(&mut self, next: i64) -> Result<(), IngestError> {
        let timestamp = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs() as u32);
        let Some(cause) = self.rotation_due(next, timestamp) else {
            return Ok(());
        };
        info!(?cause, "a new log file begins before the next transaction");
        let format_description = self.upstream_format.clone();
        self.shared.rotating.fetch_add(1, Ordering::AcqRel);
        self.alone = 0;
        // The rotation takes no permits, because the next transaction may hold all of them already.
        let rotate = AppEntry::Rotate(Rotate {
            format_description,
            timestamp,
        });
        self.propose(rotate, None, 0, Instant::now()).await
    }

    fn rotation_due(&self, next: i64, now: u32) -> Option<RotationCause> {
        if numbers_begin_anew(self.sequence_number, next) {
            return Some(RotationCause::Clock);
        }
        // While a rotation is in flight, the current file is still the previous one.
        if self.shared.rotating.load(Ordering::Acquire) > 0 {
            return None;
        }
        let mut current = self.ring.current_file();
        current.size = current.size.max(self.alone);
        rotation_due(&current, &self.upstream_format, self.file_limits, now)
    }

    /// Waits until this many more bytes may be in flight, and takes their permits. The proposing code passes them on, and the acknowledging
    /// side returns them.
    async fn room(&self, bytes: u64) -> Option<u32> {
        let permits = permits(bytes, self.shared.all_permits);
        let permit = self.shared.in_flight.acquire_many(permits).await;
        permit.ok()?.forget(); // never closed
        Some(permits)
    }

    async fn propose(
        &mut self,
        entry: AppEntry,
        end: Option<SourcePosition>,
        permits: u32,
        since: Instant,
    ) -> Result<(), IngestError> {
        let Ok(slot) = self.entries.reserve().await else {
            return Ok(()); // the acknowledging side has ended, so this side ends too
        };
        let ticket = self.ring.propose(entry, self.term, &self.sequence).await?;
        if end.is_some() {
            self.shared
                .figures
                .count(|figures| figures.proposed_total += 1);
        }
        slot.send(LedgerEntry {
            wait: Wait::Proposed(ticket),
            end,
            permits,
            since,
        });
        Ok(())
    }

    /// Handles an ACK request at a position where no transaction ends.
    async fn wish(&mut self, ack_wanted: bool) -> Result<(), IngestError> {
        if !ack_wanted {
            return Ok(());
        }
        let position = self.framer.position().clone();
        self.note(Wait::Nothing, Some(position)).await
    }

    async fn note(
        &mut self,
        wait: Wait<R::Ticket>,
        end: Option<SourcePosition>,
    ) -> Result<(), IngestError> {
        if let Ok(slot) = self.entries.reserve().await {
            slot.send(LedgerEntry {
                wait,
                end,
                permits: 0,
                since: Instant::now(),
            });
        }
        Ok(())
    }
}

// Options of ingest, and its limits.

/// Receives how long commits on the primary waited for the ring. Called in ingest's task, so it must be fast.
pub trait CommitObserver: Debug + Send + Sync {
    /// A transaction was acknowledged `waited` after its last event arrived.
    fn acknowledged(&self, waited: Duration);
}

/// How ingest attaches to the primary, and its limits.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// The primary and the member's account.
    pub connect: ConnectOptions,
    /// Requirements on the primary, and the member's identity as its replica.
    pub requirements: Requirements,
    /// Interval of the primary's heartbeats while it is idle.
    pub heartbeat: Duration,
    /// The attachment is ended after this time without data from the primary.
    pub silence_limit: Duration,
    /// Limits at which the ring's log begins a new file.
    pub file_limits: FileLimits,
    /// Limit of payload bytes that are proposed and not committed. A larger transaction is proposed alone.
    pub in_flight_bytes: u64,
    /// The first and the longest wait between attempts.
    pub retry: (Duration, Duration),
    /// The member's host in the primary's `SHOW REPLICAS`.
    pub report_host: String,
    /// Folder for large transactions during reception; without a folder they stay in memory.
    pub spill: SpillFolder,
    /// Receives how long each transaction waited.
    pub observer: Option<Arc<dyn CommitObserver>>,
}

impl IngestOptions {
    /// The defaults: a heartbeat each second, files of 1 GiB, 64 MiB in flight.
    pub fn new(mut connect: ConnectOptions, requirements: Requirements) -> Self {
        connect.program_name = "witness-ingest".to_owned();
        Self {
            connect,
            requirements,
            heartbeat: Duration::from_secs(1),
            silence_limit: Duration::from_secs(5),
            file_limits: FileLimits {
                bytes: 1 << 30,
                age: None,
            },
            in_flight_bytes: 64 << 20,
            retry: (Duration::from_millis(50), Duration::from_secs(2)),
            report_host: String::new(),
            spill: SpillFolder::default(),
            observer: None,
        }
    }
}

// The conditions for a new file of the ring's log. Pure.

/// Why a rotate entry precedes the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RotationCause {
    /// The current file has reached its size.
    Size,
    /// The current file has reached its age.
    Age,
    /// The primary's format differs from the one that the current file announces.
    Format,
    /// The primary started its sequence numbers again.
    Clock,
}

/// Limits at which a file of the ring's log ends before the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Maximum size in bytes.
    pub bytes: u64,
    /// Maximum age; `None`: unlimited.
    pub age: Option<Duration>,
}

/// Whether the next transaction should begin a new file. `upstream` is the primary's canonical format
/// description event, and `now` is in seconds since 1970.
pub(crate) fn rotation_due(
    current: &CurrentFile,
    upstream: &[u8],
    limits: FileLimits,
    now: u32,
) -> Option<RotationCause> {
    // Another leader may have begun the file with a clock that was ahead. If it was ahead by the limit or more, the file counts as old,
    // because it would otherwise count as young for that long.
    let age = Duration::from_secs(now.abs_diff(current.begun).into());
    // The headers (time and server) are ignored.
    if current.format_description.get(HEADER_LEN..) != upstream.get(HEADER_LEN..) {
        Some(RotationCause::Format)
    } else if current.size >= limits.bytes {
        Some(RotationCause::Size)
    } else if limits.age.is_some_and(|limit| age >= limit) {
        Some(RotationCause::Age)
    } else {
        None
    }
}

/// True if the primary started its sequence numbers again between these two, as it does for each binlog file. Numbers start at 1; 0 means a
/// transaction without a number.
///
/// A replica uses the numbers to find transactions that it may apply in parallel. Within one file, they must rise. Gaps are harmless, for
/// example after a change of the primary: the replica waits there until all earlier transactions are applied.
pub(crate) fn numbers_begin_anew(last: i64, next: i64) -> bool {
    (1..=last).contains(&next)
}

#[cfg(test)]
mod tests {
    use binlog_format::gtid::Gtid;

    use super::*;

    /// Regression: the second transaction would have been proposed, and its ACK would have released it.
    #[test]
    fn a_gtid_that_comes_twice_in_one_attachment_is_refused() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let gtid = |text: &str| format!("{UUID}:{text}").parse::<Gtid>().unwrap();
        let mut received = GtidSet::new();
        for once in ["1", "2", "tag:1", "4", "3"] {
            assert!(received.add(gtid(once)));
        }
        assert!(!received.add(gtid("2")));
    }
}

#[cfg(test)]
mod rotation_tests {
    use binlog_format::events::FormatDescription;
    use bytes::Bytes;

    use super::*;

    const LIMITS: FileLimits = FileLimits {
        bytes: 100,
        age: Some(Duration::from_secs(60)),
    };
    const NOW: u32 = 10_000;

    fn file(size: u64) -> CurrentFile {
        CurrentFile {
            size,
            begun: NOW,
            format_description: FormatDescription::built_in_event().into(),
        }
    }

    fn due(current: &CurrentFile, upstream: &[u8]) -> Option<RotationCause> {
        rotation_due(current, upstream, LIMITS, NOW)
    }

    #[test]
    fn size_and_format_decide() {
        let built_in = FormatDescription::built_in_event();
        assert_eq!(due(&file(10), &built_in), None);
        assert_eq!(due(&file(100), &built_in), Some(RotationCause::Size));
        let mut later = built_in.clone();
        later[..4].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(
            due(&file(10), &later),
            None,
            "the time in the header does not matter"
        );
        *later.last_mut().unwrap() ^= 1;
        assert_eq!(due(&file(10), &later), Some(RotationCause::Format));
        let empty = CurrentFile {
            format_description: Bytes::new(),
            ..file(0)
        };
        assert_eq!(due(&empty, &built_in), Some(RotationCause::Format));
    }

    #[test]
    fn a_file_ends_where_the_primary_numbers_anew() {
        for (last, next, restarts) in [
            (0, 1, false),
            (1, 2, false),
            (7, 50, false),
            (1, 1, true),
            (50, 1, true),
            (50, 50, true),
            // A transaction without a number does not restart the numbers.
            (50, 0, false),
            (0, 0, false),
            (0, 50, false),
        ] {
            assert_eq!(numbers_begin_anew(last, next), restarts, "{last} {next}");
        }
    }

    #[test]
    fn a_file_ends_with_its_age_also_where_a_clock_was_ahead() {
        let built_in = FormatDescription::built_in_event();
        let begun = |begun| CurrentFile { begun, ..file(10) };
        for young in [NOW - 59, NOW, NOW + 59] {
            assert_eq!(due(&begun(young), &built_in), None, "{young}");
        }
        for old in [0, NOW - 60, NOW + 60, u32::MAX] {
            let cause = due(&begun(old), &built_in);
            assert_eq!(cause, Some(RotationCause::Age), "{old}");
        }
        let ageless = FileLimits {
            age: None,
            ..LIMITS
        };
        assert_eq!(rotation_due(&begun(0), &built_in, ageless, NOW), None);
    }
}
