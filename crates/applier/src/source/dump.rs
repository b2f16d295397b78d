//! The log of a mysqld, or of another server with its dump protocol, read as a replica does. A broken connection
//! is reopened at the same position.

use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use mysql_link::{
    ConnectOptions, Connection, DumpError, DumpOptions, DumpRefusal, LinkError, ReplicationStream,
};
use spilling_bytes::long_work;

use super::{Drained, Source, SourceError, reopening};

/// Reads a log over the dump protocol.
#[derive(Debug)]
pub struct DumpSource {
    connect: ConnectOptions,
    dump: DumpOptions,
    /// How long to retry an unreachable source.
    patience: Duration,
    stream: Option<ReplicationStream>,
    framer: TransactionFramer,
    /// Whether the source has reported that there is nothing more at the moment.
    drained: Drained,
}

impl DumpSource {
    /// A log of everything that `dump.have` lacks. `dump.semi_sync` is ignored: no commit should wait for an applier.
    pub fn new(
        connect: ConnectOptions,
        dump: DumpOptions,
        patience: Duration,
        max_transaction_bytes: u64,
    ) -> Self {
        Self {
            connect,
            dump: DumpOptions {
                semi_sync: false,
                ..dump
            },
            patience,
            stream: None,
            framer: TransactionFramer::new(ChecksumAlgorithm::Crc32, max_transaction_bytes),
            drained: Drained::default(),
        }
    }

    /// The transactions that the source should omit, and those it sent since.
    pub fn have(&self) -> &GtidSet {
        &self.dump.have
    }

    async fn connect(&self) -> Result<ReplicationStream, DumpError> {
        let connection = Connection::open(&self.connect).await?;
        ReplicationStream::start(connection, &self.dump).await
    }

    /// A stream, with retries until that succeeds or patience ends.
    async fn stream(&mut self) -> Result<&mut ReplicationStream, SourceError> {
        if self.stream.is_none() {
            let opened = self.open().await?;
            self.framer.reset(ChecksumAlgorithm::Crc32);
            self.drained.set(false);
            return Ok(self.stream.insert(opened));
        }
        match &mut self.stream {
            Some(stream) => Ok(stream),
            None => Err(SourceError::Unreachable("the stream is gone".to_owned())),
        }
    }

    async fn open(&self) -> Result<ReplicationStream, SourceError> {
        let opening = reopening(self.patience);
        let opened = opening.ask("the source cannot be read", may_pass, || self.connect());
        opened.await.map_err(|error| match may_pass(&error) {
            true => SourceError::Unreachable(error.to_string()),
            false => refused(&error),
        })
    }
}

/// Its meaning for an applier.
fn refused(error: &DumpError) -> SourceError {
    let words = match error {
        DumpError::Refused {
            refusal: DumpRefusal::PurgedGtids,
            error,
            ..
        } => format!(
            "the source has purged transactions that the target lacks: {error}. Provision the target with a copy that has \
             them, or apply from a source that still has them"
        ),
        DumpError::Refused {
            refusal: DumpRefusal::SourceBehind,
            error,
            ..
        } => format!(
            "the target has transactions that the source lacks: {error}. Look which they are (GTID_SUBTRACT of the two \
             gtid_executed), and apply from a source that has them"
        ),
        other => other.to_string(),
    };
    SourceError::Refused(words)
}

/// Whether the same call may succeed later.
fn may_pass(error: &DumpError) -> bool {
    match error {
        DumpError::Link(error) => matches!(
            error,
            LinkError::Unreachable { .. } | LinkError::Timeout { .. } | LinkError::Closed { .. }
        ),
        DumpError::Refused { refusal, .. } => *refusal == DumpRefusal::DuplicateUuid,
        DumpError::Silent { .. } | DumpError::Ended { .. } => true,
        _ => false,
    }
}

impl Source for DumpSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            let event = match self.stream().await?.next().await {
                Ok(event) => event.event,
                Err(error) => {
                    self.stream = None;
                    if !may_pass(&error) {
                        return Err(refused(&error));
                    }
                    tracing::warn!(%error, "the source was interrupted; opening it again");
                    continue;
                }
            };
            let framed = long_work::run(event.bytes().len(), || self.framer.push(&event));
            let item = match framed {
                Ok(item) => item,
                Err(error) => return Err(SourceError::Refused(error.to_string())),
            };
            match item {
                Some(StreamItem::Transaction(transaction)) => {
                    self.dump.have.add(transaction.gtid);
                    self.drained.set(false);
                    return Ok(Some(transaction));
                }
                Some(StreamItem::Heartbeat(_)) => self.drained.set(true),
                _ => {}
            }
        }
    }

    fn drained(&self) -> Drained {
        self.drained.clone()
    }
}
