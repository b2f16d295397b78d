//! A transaction as a member's log keeps it: the events of one payload, without checksums.

use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use bytes::Bytes;

use crate::source::SourceError;

/// The transaction of a member's canonical payload.
///
/// # Errors
/// [`SourceError::Refused`] when it has no meaning, or is larger than the bound.
pub fn framed(
    payload: Bytes,
    max_transaction_bytes: u64,
) -> Result<FramedTransaction, SourceError> {
    // It is copied.
    long_work::run(payload.len(), || frame(payload, max_transaction_bytes))
}

fn frame(payload: Bytes, max_transaction_bytes: u64) -> Result<FramedTransaction, SourceError> {
    let no_meaning = |error: &dyn std::fmt::Display| {
        SourceError::Refused(format!(
            "the member's log has a transaction without a meaning: {error}"
        ))
    };
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::None, max_transaction_bytes);
    let mut last = None;
    for event in CanonicalEvents::new(payload) {
        let event = event.map_err(|error| no_meaning(&error))?;
        last = framer.push(&event).map_err(|error| no_meaning(&error))?;
    }
    match last {
        Some(StreamItem::Transaction(transaction)) => Ok(transaction),
        _ => Err(no_meaning(&"it has no end")),
    }
}
