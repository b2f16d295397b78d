//! A member's status, and conclusions from it.

mod answers;
mod mysql_view;
mod replication_routes;
#[cfg(any(test, feature = "samples"))]
pub mod sample;
mod view;

pub use crate::status::answers::{Answer, NotReady, Question, answer};
pub use crate::status::mysql_view::{
    ErrantTransactions, MysqlView, MysqldRole, MysqldState, WriteFenceView,
};
pub use crate::status::replication_routes::{
    FallbackView, LinkView, RelayedView, ReplicationRoutesView, SentView,
};
pub use crate::status::view::{
    ActivityView, ArchiveView, ClientAddresses, ConsumerView, DISK_HANGS, FailingHook, FormatsView,
    GtidText, HooksView, LogView, LoggedMember, MemberName, MemberView, PauseView, PeerView,
    ProgramView, QuorumView, RingName, Role, ScrubView, TimersView, ViewSource,
};

/// Advice for members that do not run, however they are started.
#[must_use]
pub fn start_advice(named: &str) -> String {
    format!("start witness on {named} (`systemctl start witness`, or `witness run`)")
}
