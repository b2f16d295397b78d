//! Why an attachment ended.

use binlog_format::framing::FramingError;
use binlog_format::gtid::Gtid;
use mysql_link::{DumpError, LinkError};
use mysqld_server::settings::{ApplyError, Finding};
use thiserror::Error;

use crate::ingest::ack_ledger::NotCommitted;
use crate::ingest::attachment::AttachRefusal;
use crate::ingest::awaited::NeverSent;
use crate::ring::RingError;

/// Why an attachment failed to start, or ended.
#[derive(Debug, Error)]
pub enum IngestError {
    /// The leadership is over: another member attaches now.
    #[error("this member's leadership is over")]
    LeadershipOver,
    /// The primary cannot be reached, or refuses the member.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The primary's settings do not allow it.
    #[error("the primary is not set up for it: {}", listed(.findings))]
    NotSetUp {
        /// The problems, and their remedies.
        findings: Vec<Finding>,
    },
    /// A setting could not be changed.
    #[error("the primary could not be set up: {0}")]
    Apply(#[from] ApplyError),
    /// Primary and ring do not belong together.
    #[error(transparent)]
    Attach(#[from] AttachRefusal),
    /// The dump skipped a transaction that waits for an ACK.
    #[error(transparent)]
    NeverSent(#[from] NeverSent),
    /// The primary sent two transactions with one GTID.
    #[error(
        "mysqld sent {0} a second time in one attachment, as after RESET BINARY LOGS AND GTIDS: members would have one of the two \
         transactions. Kill this mysqld, so that another one becomes the primary, and reprovision it"
    )]
    SentAgain(Gtid),
    /// The primary returned an unreadable value.
    #[error("the primary's {what} cannot be read: {reason}")]
    Unreadable {
        /// Name of the value, as in "executed GTIDs".
        what: &'static str,
        /// The problem with it.
        reason: String,
    },
    /// The dump was refused, or ended.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The stream cannot be cut into transactions.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// The ring did not accept a transaction.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A proposal was not committed.
    #[error(transparent)]
    NotCommitted(#[from] NotCommitted),
}

impl IngestError {
    /// Whether the ring caused the failure, and not the primary.
    pub(crate) fn is_of_the_ring(&self) -> bool {
        matches!(
            self,
            Self::LeadershipOver | Self::Ring(_) | Self::NotCommitted(_)
        )
    }

    /// Whether the primary lacks transactions that the ring has.
    pub(crate) fn lacks_the_log(&self) -> bool {
        matches!(self, Self::Attach(AttachRefusal::PrimaryLacks { .. }))
    }
}

fn listed(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
