//! What a member notes for the ring's history: that it leads, that it gave the leadership away, that transactions were cut off its
//! mysqld's binlog.

use std::sync::Arc;
use std::time::Duration;

use consensus::{HistoryEvent, Member, Promoted};

use crate::state::MemberState;

/// This member leads now.
pub(crate) fn note_leadership(member: &Member, writable: bool) {
    let status = member.status();
    let own = status.ring_view.member(member.id());
    let (Some(own), Some(leader)) = (own, member.named(member.id())) else {
        return;
    };
    let silence = member.heard_leader_ago();
    let event = HistoryEvent::Led {
        leader,
        kind: own.record.kind,
        log_end: status.ring_view.last_log,
        leaderless_ms: silence.and_then(|silence| silence.as_millis().try_into().ok()),
        writable,
    };
    member.note("", event);
}

/// This member has given the leadership away: by an order, or for a reason of its own.
pub(crate) fn note_promotion(member: &Member, promoted: &Promoted, by: &str, why: String) {
    // While failover is paused, a leader can become the primary itself.
    if promoted.leader == member.id() {
        return;
    }
    if let (Some(from), Some(to)) = (member.named(member.id()), member.named(promoted.leader)) {
        member.note(by, HistoryEvent::GaveAway { from, to, why });
    }
}

/// How often it is looked whether transactions were cut off.
const LOOK: Duration = Duration::from_secs(1);

/// Notes what is cut off the binlog of the mysqld beside this member, for as long as it is polled.
pub(crate) async fn watch_trims(state: Arc<MemberState>, member: Member) {
    let mut known = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let trimmed = state
            .management()
            .map_or(0, |management| management.view().trimmed_total);
        if trimmed > known
            && let Some(own) = member.named(member.id())
        {
            let transactions = trimmed - known;
            let event = HistoryEvent::Trimmed {
                member: own,
                transactions,
            };
            member.note("", event);
            known = trimmed;
        }
    }
}
