//! Whose turn it is to archive: all members find the same order of themselves by what the ring says of them, and the archive tells
//! those behind the first whether the ones before them do their work. Pure.
//!
//! Two that archive at the same time do no harm (`archive`), so nobody has to be sure. A member in front that is down, or cannot
//! reach the storage, is noticed by the archive standing still.

use std::collections::BTreeMap;
use std::time::Duration;

use binlog_store::LogPlace;
use raft_types::{MemberId, MemberKind, MemberRecord};
use tokio::time::Instant;

/// How long the archive may stand still, for each member that is in front.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// The same in intervals of the archive.
const PATIENCE: u32 = 4;

/// How many members are in front of this one. Witnesses come first, since it costs no primary anything there; then those of the
/// leader's region, which have everything first; the leader itself last.
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

/// What a member does at one of its intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Archive,
    /// It looks how far the archive is, and asks [`Turn::looked`].
    Look,
    Nothing,
}

/// How far the archive was when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Up to where it has the log.
    pub(crate) archived: Option<LogPlace>,
    /// Who archived that.
    pub(crate) by: Option<MemberId>,
}

/// What one member knows of its turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// It archives in the place of those in front.
    stands_in: bool,
    /// Since when, and up to where, the archive is waited for.
    waits: Option<(Instant, LogPlace)>,
}

impl Turn {
    /// With `committed` of the log at this moment.
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

    /// Whether to archive, now that this was seen.
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
            // Until somebody else goes on with it.
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
    fn witnesses_near_the_leader_come_first_and_a_leading_database_member_last_of_its_region() {
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
        // One that the ring does not have comes behind all.
        assert_eq!(place(MemberId(9), None, &members()), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_behind_goes_on_when_the_archive_stands_still_and_stops_when_another_goes_on() {
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
        // What was committed 20 s ago is there.
        assert_eq!(act(&mut turn, 1, 500), Act::Look);
        assert!(!turn.looked(own, seen(100, other), at(500), Instant::now()));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(act(&mut turn, 1, 900), Act::Look);
        assert!(turn.looked(own, seen(499, other), at(900), Instant::now()));
        // It stands in, and looks each time.
        assert_eq!(act(&mut turn, 1, 950), Act::Look);
        assert!(turn.looked(own, seen(900, own), at(950), Instant::now()));
        assert_eq!(act(&mut turn, 1, 990), Act::Look);
        assert!(!turn.looked(own, seen(990, other), at(990), Instant::now()));
        assert_eq!(act(&mut turn, 1, 990), Act::Nothing);
        // Behind two, it waits twice as long; and an archive that is empty stands still.
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
