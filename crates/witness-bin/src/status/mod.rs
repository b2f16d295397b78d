//! What a member says of itself, and what follows from it.

mod answers;
mod asker;
mod ring_report;
#[cfg(test)]
pub(crate) mod sample;
mod view;

pub use answers::{Answer, Question, answer};
pub use asker::Asker;
pub use ring_report::{MemberReport, RingReport};
pub use view::{
    ActivityView, LogView, MemberName, MemberView, MysqlView, PeerView, QuorumView, RingName, Role,
    ViewSource,
};
