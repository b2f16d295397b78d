//! While the member serves as the leader, it attaches to the primary as a semi-sync replica and proposes the primary's transactions in
//! order. Each transaction is acknowledged after the ring has committed it, never before.

mod ack_ledger;
mod acking;
mod attachment;
mod ingest_task;
mod reading;
mod reserve;
mod session;
mod status;

pub use ack_ledger::{AckLedger, LedgerEntry, NotCommitted, Release, Wait};
pub use attachment::{
    AttachRefusal, Attachment, Awaited, EarlierLooks, NeverSent, PrimaryGtids, attach,
};
pub use ingest_task::Ingest;
pub use reading::{CommitObserver, FileLimits, IngestOptions};
pub use status::{
    Failing, IngestError, IngestFigures, IngestFiguresView, IngestState, IngestStatus,
};
