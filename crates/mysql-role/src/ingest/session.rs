//! One attachment: from connecting to its end.

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::TransactionFramer;
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use mysql_link::{Connection, DumpOptions, ReplicationStream};
use tokio::sync::mpsc;

use crate::ingest::ack_ledger::AckLedger;
use crate::ingest::acking::Waiting;
use crate::ingest::attachment::{Attachment, PrimaryGtids, attach};
use crate::ingest::error::IngestError;
use crate::ingest::options::IngestOptions;
use crate::ingest::reading::{Reading, Shared};
use crate::ingest::status::IngestFigures;
use crate::ring::{LeaderTerm, Ring, RingLog};
use crate::settings::{
    Depth, Observed, Phase, Plan, Severity, apply, observe, parse_gtid_owned, preflight,
};

/// How many entries may wait between the two sides; their bytes are bounded apart.
const QUEUE: usize = 4096;

/// An attachment that has come about.
pub(super) struct Session {
    stream: ReplicationStream,
    log: RingLog,
    checksum: ChecksumAlgorithm,
    attachment: Attachment,
}

impl Session {
    /// Connects, sets the primary up, compares it with the ring, and starts the dump. Commits are
    /// made to wait only after the dump runs, so that somebody is there to acknowledge them.
    pub(super) async fn open<R: Ring>(
        ring: &R,
        options: &IngestOptions,
    ) -> Result<Self, IngestError> {
        let mut control = Connection::open(&options.connect).await?;
        let observed = set_up(&mut control, options).await?;
        let log = ring.log().await?;
        let attachment = attach(&primary_gtids(&mut control).await?, &log.gtids)?;

        let dump = Connection::open(&options.connect).await?;
        let stream = ReplicationStream::start(dump, &dump_options(options, &attachment)).await?;

        let observed_now = observe(&mut control, Depth::Watch).await?;
        let plan = Plan::make(&observed_now, &options.requirements, Phase::Attached);
        apply(&mut control, &plan, observed_now.is_super_read_only()).await?;
        control.close().await;
        let checksum = match observed.variable("binlog_checksum") {
            Some("NONE") => ChecksumAlgorithm::None,
            _ => ChecksumAlgorithm::Crc32,
        };
        Ok(Self {
            stream,
            log,
            checksum,
            attachment,
        })
    }

    /// How many transactions will come again because their ACK was lost.
    pub(super) fn expected_again(&self) -> u128 {
        self.attachment.expected_again.count()
    }

    /// Runs until something fails or the leadership ends; then the connection is closed at once.
    /// Returns the reason, and the tickets whose outcome is not known yet.
    pub(super) async fn run<R: Ring>(
        self,
        ring: &R,
        term: LeaderTerm,
        options: &IngestOptions,
        figures: &IngestFigures,
    ) -> (IngestError, Vec<R::Ticket>) {
        let (events, acker) = self.stream.split();
        let (entries, inbox) = mpsc::channel(QUEUE);
        let shared = Shared::new(figures, options.in_flight_bytes);
        let mut waiting = Waiting {
            ledger: AckLedger::default(),
            inbox,
        };
        let reading = Reading {
            ring,
            term,
            events,
            framer: TransactionFramer::new(
                self.checksum,
                options.requirements.max_transaction_bytes,
            ),
            log: self.log,
            max_file_bytes: options.max_file_bytes,
            upstream_format: Bytes::new(),
            entries,
            shared: &shared,
        };
        // One task for both sides: a commit wakes it, and the ACK goes out without another hop.
        let end = tokio::select! {
            biased;
            () = ring.leadership_over(term) => IngestError::LeadershipOver,
            Err(error) = waiting.run(acker, ring.committed(), &shared) => error,
            Err(error) = reading.run() => error,
        };
        figures.detached();
        (end, waiting.into_tickets())
    }
}

async fn set_up(
    control: &mut Connection,
    options: &IngestOptions,
) -> Result<Observed, IngestError> {
    let requirements = &options.requirements;
    let observed = observe(control, Depth::Preflight).await?;
    let findings: Vec<_> = preflight(&observed, requirements)
        .into_iter()
        .filter(|finding| finding.severity == Severity::Blocks)
        .collect();
    if !findings.is_empty() {
        return Err(IngestError::NotSetUp { findings });
    }
    let plan = Plan::make(&observed, requirements, Phase::BeforeAttach);
    apply(control, &plan, observed.is_super_read_only()).await?;
    Ok(observed)
}

async fn primary_gtids(control: &mut Connection) -> Result<PrimaryGtids, IngestError> {
    // The owned ones first: a transaction that commits meanwhile is then seen in one of the two.
    let owned = text(control, "gtid_owned").await?;
    let executed = text(control, "gtid_executed").await?;
    let purged = text(control, "gtid_purged").await?;
    let unreadable = |what| {
        move |error: binlog_format::gtid::ParseGtidError| IngestError::Unreadable {
            what,
            reason: error.to_string(),
        }
    };
    Ok(PrimaryGtids {
        executed: executed
            .parse::<GtidSet>()
            .map_err(unreadable("gtid_executed"))?,
        owned: parse_gtid_owned(&owned).map_err(unreadable("gtid_owned"))?,
        purged: purged
            .parse::<GtidSet>()
            .map_err(unreadable("gtid_purged"))?,
    })
}

async fn text(control: &mut Connection, what: &'static str) -> Result<String, IngestError> {
    let result = control.query(&format!("SELECT @@GLOBAL.{what}")).await?;
    let value = result.first().and_then(|row| row.text_at(0));
    value.map(str::to_owned).ok_or(IngestError::Unreadable {
        what,
        reason: "it is no text".to_owned(),
    })
}

fn dump_options(options: &IngestOptions, attachment: &Attachment) -> DumpOptions {
    let requirements = &options.requirements;
    DumpOptions {
        heartbeat: options.heartbeat,
        silence_limit: options.silence_limit,
        report_host: options.report_host.clone(),
        ..DumpOptions::new(
            requirements.replica_server_id,
            requirements.replica_uuid,
            attachment.have.clone(),
        )
    }
}
