//! A running dump: reads the committed part of the log, file by file, and sends it until the consumer disconnects. The bytes queued for a
//! slow consumer are bounded, and delay no other client.

mod binlog_events;
mod feed;
mod request;

use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventHeader, EventRef, HEADER_LEN};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::answers::{ErrorAnswer, EventPackets, code, eof_packet};
use crate::committed_files::{CommittedFiles, KeptFile, Position, ReadError};
use crate::consumers::{Attached, DumpKind};
use crate::dump::feed::{CurrentFile, Feed, Rule};
use crate::dump::request::{FIRST_EVENT, Wanted};
pub(crate) use crate::dump::request::{Request, parse_register};
use crate::session::{Client, Ended, Shared};

/// Bytes that one read of the log requests, unless an event needs more.
const READ_BYTES: usize = 128 << 10;
/// Maximum size of a format description that is sent.
const MAX_DESCRIPTION: usize = 4 << 10;
/// Delay before an error that may be temporary is sent, because a replica reconnects immediately after it.
const BEFORE_ANOTHER_TRY: Duration = Duration::from_secs(1);

/// Why a dump ends.
#[derive(Debug, Error)]
enum Stop {
    #[error(transparent)]
    Error(#[from] ErrorAnswer),
    /// Everything was sent, and the consumer requested a dump that does not wait.
    #[error("it has everything")]
    EndOfLog,
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Runs a dump to its end, after which the connection is closed. `sequence` is the number of the first packet.
pub(crate) async fn run(client: &mut Client<'_>, request: Request, sequence: u8) -> Ended {
    let kind = match request.wanted {
        Wanted::Without { .. } => DumpKind::Gtids,
        Wanted::From { .. } => DumpKind::Position,
    };
    let attached = client.shared.consumers.attach(
        client.connection,
        client.address,
        request.server_id,
        client.variables.replica_uuid(),
        kind,
    );
    let mut out = EventPackets::from(sequence);
    let stop = match begin(client, request, &attached, &mut out).await {
        Ok(mut dump) => dump.send_all().await,
        Err(stop) => stop,
    };
    // If a part of an event was sent that cannot be completed, the consumer keeps that part.
    let cut = !out.take_back();
    let why = stop.to_string();
    let (last, reconnects) = match stop {
        Stop::Ended(ended) => return ended,
        Stop::EndOfLog => (eof_packet(), false),
        Stop::Error(error) => (error.packet(), cut || error.code == code::UNKNOWN),
    };
    if reconnects {
        let shared = client.shared;
        tokio::select! {
            () = tokio::time::sleep(BEFORE_ANOTHER_TRY) => {}
            () = attached.replaced.cancelled() => {}
            () = shared.stop.cancelled() => return Ended::Stopping,
            ended = client.disconnects() => return ended,
        }
    }
    if cut {
        return Ended::DumpOver(why);
    }
    let mut bytes = out.take().to_vec();
    mysql_link::wire::encode_packet(out.sequence, &last, &mut bytes);
    match client.send(&bytes).await {
        Ok(()) => Ended::DumpOver(why),
        Err(ended) => ended,
    }
}

struct Dump<'a, 'c> {
    client: &'a mut Client<'c>,
    attached: &'a Attached,
    out: &'a mut EventPackets,
    committed: watch::Receiver<Position>,
    rule: Rule,
    at: Position,
    /// The requested offset in the file, if any. An event may not begin there.
    asked: Option<u64>,
    /// `None` for a file that must be fetched.
    kept: Option<KeptFile>,
    log: &'c dyn CommittedFiles,
    file: CurrentFile,
    heartbeat: Option<Duration>,
    non_blocking: bool,
    last_sent: Instant,
    /// The checksum algorithm that the consumer expects in generated events now.
    checksum: ChecksumAlgorithm,
}

async fn begin<'a, 'c>(
    client: &'a mut Client<'c>,
    request: Request,
    attached: &'a Attached,
    out: &'a mut EventPackets,
) -> Result<Dump<'a, 'c>, Stop> {
    let checksum = client.variables.checksum().ok_or_else(|| {
        ErrorAnswer::fatal(
            "the events have CRC32 checksums, and the client did not say that it knows of them: \
             SET @source_binlog_checksum = @@global.binlog_checksum",
        )
    })?;
    let shared = client.shared;
    let registered_as = shared.consumers.registered_as(client.connection);
    let patience = shared.options.catch_up_limit;
    let found = request::find(&*shared.log, request.wanted, registered_as, patience);
    let found = tokio::select! {
        found = found => found?,
        stop = attached.interrupted(shared) => return Err(stop),
    };
    tracing::info!(
        address = %client.address,
        connection = client.connection,
        server_id = request.server_id,
        file = shared.log.name_of(found.at.file),
        offset = found.at.offset,
        "a dump begins"
    );
    Ok(Dump {
        heartbeat: client.variables.heartbeat(),
        non_blocking: request.non_blocking,
        committed: shared.log.committed(),
        client,
        attached,
        out,
        rule: found.rule,
        at: found.at,
        asked: None,
        kept: found.kept,
        log: &*shared.log,
        file: CurrentFile {
            name: String::new(),
            server_id: shared.options.identity.server_id,
            heartbeat_v2: request.heartbeat_v2,
        },
        last_sent: Instant::now(),
        checksum,
    })
}

impl Dump<'_, '_> {
    async fn send_all(&mut self) -> Stop {
        loop {
            if let Err(stop) = self.send_file().await {
                return stop;
            }
            let next = self.at.file.next();
            // Keeps the next file. This also releases the previous one, only now: if the next file must be fetched, it may need the disk
            // space of a previous file that was fetched.
            self.kept = self.log.keep(next);
            self.at = Position {
                file: next,
                offset: FIRST_EVENT,
            };
        }
    }

    /// Sends the rest of the current file.
    async fn send_file(&mut self) -> Result<(), Stop> {
        self.file.name = self.log.name_of(self.at.file);
        let rotate = self.file.rotate(self.at.offset, self.checksum);
        self.out.event(&rotate);
        if self.kept.is_none() {
            self.fetch().await?;
        }
        let behind_description = self.send_description().await?;
        let begin = self.at.offset.max(behind_description);
        self.asked = Some(begin).filter(|begin| *begin > behind_description);
        let mut feed = Feed::at(begin, self.log);
        // The number of bytes that the feed needs at least.
        let mut need = 1;
        loop {
            self.at.offset = feed.offset;
            self.attached.progress.reached(self.at);
            let end = *self.committed.borrow_and_update();
            let closed = end.file > self.at.file;
            let limit = if closed { u64::MAX } else { end.offset };
            let left = limit.saturating_sub(self.at.offset);
            if left == 0 {
                self.wait_for_more(&mut feed).await?;
                continue;
            }
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let chunk = self.read(left.min(READ_BYTES.max(need))).await?;
            if chunk.is_empty() && closed && feed.passing == 0 {
                return Ok(());
            }
            // The committed part and a closed file both end with a complete event.
            if chunk.len() < need {
                let why = "it ends in the middle of an event";
                return Err(self.bad(feed.offset, why).into());
            }
            need = self.pass_on(&mut feed, &chunk).await?;
        }
    }

    /// Passes a chunk to the feed, and the feed's output to the consumer. Returns how many bytes the next chunk needs at least.
    async fn pass_on(&mut self, feed: &mut Feed<'_>, chunk: &[u8]) -> Result<usize, Stop> {
        let begin = feed.offset;
        let room = self.client.shared.options.queue_bytes;
        loop {
            let used = usize::try_from(feed.offset - begin).unwrap_or(usize::MAX);
            let Some(rest) = chunk.get(used..).filter(|rest| !rest.is_empty()) else {
                return Ok(1);
            };
            let need = feed.take(rest, &self.rule, &self.file, self.out, room);
            let need = need.map_err(|error| self.bad(error.offset(), &error.to_string()))?;
            self.attached.progress.queued(self.out.len());
            if self.out.len() < room {
                self.report_skipped(feed).await?;
                return Ok(need);
            }
            self.flush().await?;
        }
    }

    /// Sends the file's first event; returns the offset of the second one.
    async fn send_description(&mut self) -> Result<u64, Stop> {
        let wanted = self.at;
        self.at.offset = FIRST_EVENT;
        let head = self.read(MAX_DESCRIPTION).await?;
        self.at = wanted;
        let header = head
            .get(..HEADER_LEN)
            .and_then(|head| EventHeader::parse(head).ok());
        let size = header.map_or(0, |header| header.event_size as usize);
        let is_whole = |stored: &&[u8]| {
            let event = EventRef::new(stored);
            event.is_ok_and(|event| event.verified(ChecksumAlgorithm::Crc32).is_ok())
        };
        let Some(stored) = head.get(..size).filter(is_whole) else {
            let why = "its format description cannot be read";
            return Err(self.bad(FIRST_EVENT, why).into());
        };
        let by_place = matches!(self.rule, Rule::All { .. });
        if by_place && self.at.offset > FIRST_EVENT {
            self.out.event(&feed::out_of_place(stored));
        } else {
            self.out.event(stored);
        }
        self.checksum = ChecksumAlgorithm::Crc32;
        Ok(FIRST_EVENT + size as u64)
    }

    /// Reads from the dump's current position.
    async fn read(&mut self, at_most: usize) -> Result<bytes::Bytes, Stop> {
        let read = tokio::select! {
            read = self.log.read(self.at, at_most) => read,
            stop = self.attached.interrupted(self.client.shared) => return Err(stop),
        };
        read.map_err(|error| self.unread(error).into())
    }

    fn unread(&self, error: ReadError) -> ErrorAnswer {
        match error {
            ReadError::Gone => ErrorAnswer::fatal(format!("{} was purged", self.file.name)),
            error => request::refused(error),
        }
    }

    /// Waits until the current file is fetched. The consumer has already received its name, and receives heartbeats.
    async fn fetch(&mut self) -> Result<(), Stop> {
        self.attached.progress.reached(self.at);
        self.flush().await?;
        let shared = self.client.shared;
        let mut fetched = shared.log.fetch(self.at.file);
        loop {
            let beat_at = self.beat_at();
            tokio::select! {
                kept = &mut fetched => {
                    self.kept = Some(kept.map_err(|error| self.unread(error))?);
                    return Ok(());
                }
                () = until(beat_at) => {}
                stop = self.attached.interrupted(shared) => return Err(stop),
                ended = self.client.disconnects() => return Err(ended.into()),
            }
            self.beat(self.at.offset);
            self.flush().await?;
        }
    }

    /// Time of the next heartbeat.
    fn beat_at(&self) -> Option<Instant> {
        self.heartbeat
            .and_then(|period| self.last_sent.checked_add(period))
    }

    /// Called when all committed bytes are read: sends the queue, then waits for more bytes or for the time of a heartbeat.
    async fn wait_for_more(&mut self, feed: &mut Feed<'_>) -> Result<(), Stop> {
        if let Some(skipped) = feed.skipped_to.take() {
            self.beat(skipped);
        }
        self.flush().await?;
        if self.non_blocking {
            return Err(Stop::EndOfLog);
        }
        let beat_at = self.beat_at();
        let shared = self.client.shared;
        tokio::select! {
            why = over_because(shared.log.over()) => return Err(ErrorAnswer::fatal(why).into()),
            changed = self.committed.changed() => {
                return changed.map_err(|_| Ended::Stopping.into());
            }
            () = until(beat_at) => {}
            stop = self.attached.interrupted(shared) => return Err(stop),
            ended = self.client.disconnects() => return Err(ended.into()),
        }
        self.beat(feed.offset);
        self.flush().await
    }

    /// Sends a heartbeat about skipped events, if one is due. Otherwise a consumer that has a large part of the log would receive nothing
    /// for a long time.
    async fn report_skipped(&mut self, feed: &mut Feed<'_>) -> Result<(), Stop> {
        let due = self
            .heartbeat
            .is_some_and(|period| self.last_sent.elapsed() >= period);
        if due
            && feed.passing == 0
            && self.out.len() == 0
            && let Some(skipped) = feed.skipped_to.take()
        {
            self.beat(skipped);
            self.flush().await?;
        }
        Ok(())
    }

    fn beat(&mut self, offset: u64) {
        let event = self.file.heartbeat(offset, self.checksum);
        self.out.event(&event);
    }

    async fn flush(&mut self) -> Result<(), Stop> {
        if self.out.len() == 0 {
            return Ok(());
        }
        let bytes = self.out.take();
        let progress = &self.attached.progress;
        let sent = tokio::select! {
            sent = self.client.send_telling(&bytes, |left| progress.queued(left)) => sent,
            () = self.attached.replaced.cancelled() => return Err(Ended::DumpOver(replaced().message).into()),
        };
        self.last_sent = Instant::now();
        Ok(sent?)
    }

    fn bad(&self, offset: u64, why: &str) -> ErrorAnswer {
        let name = &self.file.name;
        tracing::error!(
            file = name,
            offset,
            why,
            "a file of the log cannot be served"
        );
        if self.asked != Some(offset) {
            self.log.damaged(self.at.file, why);
        }
        ErrorAnswer::fatal(format!("{name} cannot be read at {offset}: {why}"))
    }
}

impl Attached {
    /// Completes when the dump must end, even if it is waiting.
    async fn interrupted(&self, shared: &Shared) -> Stop {
        tokio::select! {
            () = self.replaced.cancelled() => replaced().into(),
            () = shared.stop.cancelled() => Ended::Stopping.into(),
        }
    }
}

/// Completes when the log gets no more transactions; returns the reason.
async fn over_because(mut over: watch::Receiver<Option<String>>) -> String {
    let over = over.wait_for(Option::is_some).await;
    let why = over.ok().and_then(|why| why.clone());
    match why {
        Some(why) => why,
        None => std::future::pending().await,
    }
}

/// Completes at this time; never, without a time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn replaced() -> ErrorAnswer {
    ErrorAnswer::fatal(
        "A replica with the same server_uuid/server_id as this replica has connected to the source",
    )
}
