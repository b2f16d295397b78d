//! What a member says of itself, and what follows from it.

mod answers;
mod asked;
mod asker;
mod consumers;
mod differences;
mod former_keys;
mod lost_quorum;
mod pause;
mod ring_report;
#[cfg(test)]
pub(crate) mod sample;
mod travel;
mod view;

pub use answers::{Answer, Question, answer};
pub use asked::Asked;
pub use asker::Asker;
pub use consumers::ConsumerView;
pub use pause::PauseView;
pub use ring_report::{MemberReport, RingReport};
pub use travel::{FallbackView, LinkView, RelayedView, SentView, TravelView};
pub use view::{
    ActivityView, HooksView, LogView, MemberName, MemberView, MysqlView, NotTheRings, PeerView,
    QuorumView, RingName, Role, RosterView, ScrubView, ViewSource,
};
