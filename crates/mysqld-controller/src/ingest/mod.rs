//! While the member serves as the leader: attach to the primary as its semi-sync replica, propose its
//! transactions in their order, and acknowledge each when the ring has committed it, never before.

mod ack_ledger;
mod acking;
mod attachment;
mod error;
mod ingest_task;
mod options;
mod reading;
mod reserve;
mod session;
mod status;

pub use crate::ingest::ack_ledger::{AckLedger, LedgerEntry, NotCommitted, Release, Wait};
pub use crate::ingest::attachment::{AttachRefusal, Attachment, PrimaryGtids, attach};
pub use crate::ingest::error::IngestError;
pub use crate::ingest::ingest_task::Ingest;
pub use crate::ingest::options::IngestOptions;
pub use crate::ingest::status::{IngestFigures, IngestFiguresView, IngestState, IngestStatus};
