//! What the members of a ring answered that were asked at one moment.

use member::settings::MemberEntry;
use member::status::MemberView;

/// What a member that was asked answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Who it is, as the configuration says, or as the ring does when it is not configured.
    pub entry: MemberEntry,
    /// Whether it is in the configuration of whoever asks.
    pub configured: bool,
    /// What it said, or why it said nothing.
    pub answer: Result<MemberView, String>,
}

/// The view of the member whose log goes furthest; its roster and its voter sets are the newest.
pub(super) fn latest(asked: &[Asked]) -> Option<&MemberView> {
    let views = asked.iter().filter_map(|asked| asked.answer.as_ref().ok());
    views
        .filter(|view| !view.members.is_empty())
        .max_by_key(|view| view.log_end)
}
