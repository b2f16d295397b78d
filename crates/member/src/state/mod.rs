//! Where a member stands, and the view that it gives of itself.

mod member_state;
mod observer;
mod status_view;

pub(crate) use member_state::{ConsumerSource, FoundOrder, MemberState, Parts, Phase};
