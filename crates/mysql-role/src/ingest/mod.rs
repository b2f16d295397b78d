//! While the member serves as the leader: attach to the primary as its semi-sync replica, propose its
//! transactions in their order, and acknowledge each when the ring has committed it, never before.

mod ack_ledger;
mod acking;
mod attachment;
mod error;
mod ingest_task;
mod reading;
mod rotation;
mod session;
mod status;

pub use ack_ledger::{AckLedger, Release, Wait};
pub use attachment::{AttachRefusal, Attachment, PrimaryGtids, attach};
pub use error::IngestError;
pub use ingest_task::{Ingest, IngestOptions};
pub use status::{IngestFigures, IngestState, IngestStatus};
