//! A member's status, and conclusions from it.

mod answers;
mod gtid_text;
mod pause;
mod replication_routes;
#[cfg(any(test, feature = "samples"))]
pub mod sample;
mod view;

pub use crate::status::answers::{Answer, Question, answer};
pub use crate::status::gtid_text::GtidText;
pub use crate::status::pause::PauseView;
pub use crate::status::replication_routes::{
    FallbackView, LinkView, RelayedView, ReplicationRoutesView, SentView,
};
pub use crate::status::view::{
    ActivityView, ArchiveView, ClientAddresses, ConsumerView, DISK_HANGS, ErrantTransactions,
    FailingHook, FormatsView, HooksView, LogView, LoggedMember, MemberName, MemberView, MysqlView,
    PeerView, ProgramView, QuorumView, RingName, Role, ScrubView, TimersView, ViewSource,
};

/// Advice for members that do not run, however they are started.
#[must_use]
pub fn start_advice(named: &str) -> String {
    format!("start witness on {named} (`systemctl start witness`, or `witness run`)")
}
