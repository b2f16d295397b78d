//! The order in which members archive. Every member derives the same order from the ring's state. A member that is not the first one checks
//! in the archive whether the members before it archive. Pure functions.
//!
//! If two members archive concurrently, no harm is done (`archive`), so a member need not be certain that it is its turn. If a preceding
//! member is down or cannot reach the storage, the archive stalls until the next member replaces it.

use std::collections::BTreeMap;
use std::time::Duration;

use binlog_store::LogPlace;
use raft_types::{MemberId, MemberKind, MemberRecord};
use tokio::time::Instant;

/// The minimum time for which the archive may stall, for each preceding member.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// How many archive intervals the archive may stall, for each preceding member.
const PATIENCE: u32 = 4;

/// Returns the number of members before this one. Witnesses come first, because their archiving costs no primary anything. Members in the
/// leader's region come next, because they have entries first. The leader itself comes last.
pub(crate) fn place(
    own: MemberId,
    leader: Option<MemberId>,
    members: &BTreeMap<MemberId, MemberRecord>,
) -> u32 {
    let region = leader.and_then(|leader| Some(&members.get(&leader)?.region));
    let order = |(id, record): (&MemberId, &MemberRecord)| {
        (
            record.kind == MemberKind::Database,
            Some(&record.region) != region,
            Some(*id) == leader,
            *id,
        )
    };
    let Some(record) = members.get(&own) else {
        return u32::try_from(members.len()).unwrap_or(u32::MAX);
    };
    let own = order((&own, record));
    let in_front = members.iter().filter(|other| order(*other) < own);
    u32::try_from(in_front.count()).unwrap_or(u32::MAX)
}

/// A member's action in one of its intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Archive,
    /// Check the archive's progress, and then call [`Turn::looked`].
    Look,
    Nothing,
}

/// The archive's progress at a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// End of the archived log.
    pub(crate) archived: Option<LogPlace>,
    /// The member that archived the end of the log.
    pub(crate) by: Option<MemberId>,
}

/// The state that decides whether it is a member's turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// True if this member archives in place of the members before it.
    stands_in: bool,
    /// When the wait for the archive began, and the position that the archive must reach.
    waits: Option<(Instant, LogPlace)>,
}

impl Turn {
    /// Returns what to do now, when the log is committed up to `committed`.
    pub(crate) fn act(
        &mut self,
        place: u32,
        interval: Duration,
        committed: LogPlace,
        now: Instant,
    ) -> Act {
        if place == 0 {
            *self = Self::default();
            return Act::Archive;
        }
        if self.stands_in {
            return Act::Look;
        }
        let (since, _) = *self.waits.get_or_insert((now, committed));
        let patience = LEAST_PATIENCE.max(interval * PATIENCE) * place;
        match now.duration_since(since) >= patience {
            true => Act::Look,
            false => Act::Nothing,
        }
    }

    /// Records a check of the archive. Returns true if this member must archive now.
    pub(crate) fn looked(
        &mut self,
        own: MemberId,
        seen: Seen,
        committed: LogPlace,
        now: Instant,
    ) -> bool {
        let others_archive = seen.by.is_some_and(|by| by != own);
        self.stands_in = match self.waits.take() {
            Some((_, wanted)) => seen.archived < Some(wanted),
            // This member archives until another member continues.
            None => !others_archive,
        };
        if !self.stands_in {
            self.waits = Some((now, committed));
        }
        self.stands_in
    }
}

#[cfg(test)]
mod tests {
    use binlog_store::FileNumber;
    use raft_types::Region;

    use super::*;

    fn members() -> BTreeMap<MemberId, MemberRecord> {
        let one = |id, region: &str, kind| {
            let record = MemberRecord {
                region: Region(region.to_owned()),
                kind,
                ..MemberRecord::default()
            };
            (MemberId(id), record)
        };
        BTreeMap::from([
            one(1, "north", MemberKind::Database),
            one(2, "north", MemberKind::Witness),
            one(3, "north", MemberKind::Witness),
            one(4, "south", MemberKind::Database),
            one(5, "south", MemberKind::Witness),
        ])
    }

    fn at(offset: u64) -> LogPlace {
        LogPlace {
            file: FileNumber::FIRST,
            offset,
        }
    }

    #[test]
    fn archiving_order_is_witnesses_then_leaders_region_then_leader() {
        let order = |leader| {
            let members = members();
            let mut ids: Vec<_> = members.keys().map(|id| id.0).collect();
            ids.sort_by_key(|id| place(MemberId(*id), leader, &members));
            ids
        };
        assert_eq!(order(Some(MemberId(1))), [2, 3, 5, 1, 4]);
        assert_eq!(order(Some(MemberId(4))), [5, 2, 3, 4, 1]);
        assert_eq!(order(Some(MemberId(2))), [3, 2, 5, 1, 4]);
        assert_eq!(order(None), [2, 3, 5, 1, 4]);
        // A member that the ring does not have comes last.
        assert_eq!(place(MemberId(9), None, &members()), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn later_member_archives_while_the_archive_stalls() {
        let (own, other) = (MemberId(3), MemberId(2));
        let interval = Duration::from_secs(5);
        let mut turn = Turn::default();
        let seen = |offset, by| Seen {
            archived: Some(at(offset)),
            by: Some(by),
        };
        let act = |turn: &mut Turn, place, committed| {
            turn.act(place, interval, at(committed), Instant::now())
        };
        assert_eq!(act(&mut turn, 0, 100), Act::Archive);
        assert_eq!(act(&mut turn, 1, 100), Act::Nothing);
        tokio::time::advance(Duration::from_secs(19)).await;
        assert_eq!(act(&mut turn, 1, 500), Act::Nothing);
        tokio::time::advance(Duration::from_secs(1)).await;
        // The archive has the entries that were committed 20 s ago.
        assert_eq!(act(&mut turn, 1, 500), Act::Look);
        assert!(!turn.looked(own, seen(100, other), at(500), Instant::now()));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(act(&mut turn, 1, 900), Act::Look);
        assert!(turn.looked(own, seen(499, other), at(900), Instant::now()));
        // The member archives in place of another one, and checks the archive each time.
        assert_eq!(act(&mut turn, 1, 950), Act::Look);
        assert!(turn.looked(own, seen(900, own), at(950), Instant::now()));
        assert_eq!(act(&mut turn, 1, 990), Act::Look);
        assert!(!turn.looked(own, seen(990, other), at(990), Instant::now()));
        assert_eq!(act(&mut turn, 1, 990), Act::Nothing);
        // With two members before it, a member waits twice as long. An empty archive counts as stalled.
        tokio::time::advance(Duration::from_secs(39)).await;
        assert_eq!(act(&mut turn, 2, 990), Act::Nothing);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(act(&mut turn, 2, 990), Act::Look);
        let empty = Seen {
            archived: None,
            by: None,
        };
        assert!(turn.looked(own, empty, at(990), Instant::now()));
    }
}
