//! What a member says of itself, and what follows from it.

mod answers;
mod consumers;
mod former_keys;
mod pause;
#[cfg(any(test, feature = "samples"))]
pub mod sample;
mod travel;
mod view;

pub use answers::{Answer, Question, answer};
pub use consumers::ConsumerView;
pub use pause::PauseView;
pub use travel::{FallbackView, LinkView, RelayedView, SentView, TravelView};
pub use view::{
    ActivityView, HooksView, LogView, MemberName, MemberView, MysqlView, NotTheRings, PeerView,
    QuorumView, RingName, Role, RosterView, ScrubView, ViewSource,
};
