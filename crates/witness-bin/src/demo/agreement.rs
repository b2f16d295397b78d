//! What the members' views say of each other: who has caught up, whether all logs end alike. Pure.

use member::status::MemberView;
use raft_types::OpId;

/// A member under load is always some entries behind what the leader has committed by now.
const NEARLY: u64 = 100;

/// Whether a member follows this leader and has nearly all that it committed.
pub(crate) fn has_caught_up(own: &MemberView, leader: &MemberView) -> bool {
    let index = |end: Option<OpId>| end.map_or(0, |end| end.index);
    own.leader == Some(leader.member.id)
        && own.log_end.is_some()
        && index(own.log_end) + NEARLY >= index(leader.committed)
}

/// Whether every member is up and all logs end at the same entry, committed everywhere.
pub(crate) fn all_equal<'a>(views: impl Iterator<Item = Option<&'a MemberView>>) -> bool {
    let Some(views) = views.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let Some(first) = views.first() else {
        return false;
    };
    first.log_end.is_some()
        && views.iter().all(|view| {
            view.log_end == first.log_end
                && view.committed == first.log_end
                && (&view.log.file, view.log.file_bytes) == (&first.log.file, first.log.file_bytes)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use member::status::sample::{database_leader, witness_follower};

    #[test]
    fn a_member_that_is_down_or_behind_is_not_equal() {
        let (leader, follower) = (database_leader(), witness_follower());
        assert!(all_equal([Some(&leader), Some(&follower)].into_iter()));
        assert!(!all_equal([Some(&leader), None].into_iter()));
        assert!(!all_equal(std::iter::empty()));
        let changes: [fn(&mut MemberView); 3] = [
            |view| view.log_end = Some(OpId::new(3, 41)),
            |view| view.committed = Some(OpId::new(3, 41)),
            |view| view.log.file_bytes += 1,
        ];
        for change in changes {
            let mut other = witness_follower();
            change(&mut other);
            assert!(
                !all_equal([Some(&leader), Some(&other)].into_iter()),
                "{other:?}"
            );
        }
    }

    #[test]
    fn caught_up_means_nearly_all_of_the_right_leader() {
        let mut leader = database_leader();
        let mut own = witness_follower();
        assert!(has_caught_up(&own, &leader));
        leader.committed = Some(OpId::new(3, 42 + NEARLY));
        assert!(has_caught_up(&own, &leader));
        leader.committed = Some(OpId::new(3, 43 + NEARLY));
        assert!(!has_caught_up(&own, &leader));
        own.log_end = leader.committed;
        assert!(has_caught_up(&own, &leader));
        own.leader = None;
        assert!(!has_caught_up(&own, &leader));
    }
}
