//! What a member says of itself, and what follows from it.

mod answers;
mod pause;
#[cfg(any(test, feature = "samples"))]
pub mod sample;
mod travel;
mod view;

pub use crate::status::answers::{Answer, Question, answer};
pub use crate::status::pause::PauseView;
pub use crate::status::travel::{FallbackView, LinkView, RelayedView, SentView, TravelView};
pub use crate::status::view::{
    ActivityView, ConsumerView, HooksView, LogView, MemberName, MemberView, MysqlView, NotTheRings,
    PeerView, QuorumView, RingName, Role, RosterView, ScrubView, ViewSource,
};
