//! Measures one crash: kills the leader, and waits for the first commit of the next leader.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::compare::failover::events::{Acknowledged, Event, Moment, What};
use crate::compare::failover::options::Death;
use crate::compare::failover::scene::Scene;

/// The times of one crash, in milliseconds since the leader's death.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CrashTimes {
    /// Time until the first commit that another member acknowledged.
    pub(super) total_ms: f64,
    /// The duration of each phase in milliseconds. The names start with numbers in the order of the phases.
    pub(super) phases: BTreeMap<String, f64>,
}

/// Until another member is elected. Most of this time is the wait for heartbeats of the dead leader.
const DETECTION: &str = "1 detection and election";
/// Until the voter sets are those of the new leader's region.
const QUORUM_MOVE: &str = "2 quorum move";
/// Until a database member leads.
const TRANSFER: &str = "3 transfer";
/// Until the mysqld of the new leader has applied the whole log. Missing if the database is a writer.
pub(super) const CATCHING_UP: &str = "4 mysqld has the log";
/// Until clients may write to the mysqld.
pub(super) const OPENING: &str = "5 mysqld is opened";
/// Until the first commit of a client is acknowledged.
pub(super) const FIRST_COMMIT: &str = "6 first commit";

/// Waits until the ring has recovered, kills the leader, and starts it again afterwards.
pub(super) fn measure(scene: &mut Scene, death: Death) -> Result<CrashTimes> {
    let leader = scene.settled()?;
    scene.say(&format!("{} dies: {death:?}", scene.name(leader)));
    let killed = Moment::now();
    scene.kill(leader, death)?;
    let first = scene.first_commit(killed, leader)?;
    let phases = phases(killed, &scene.events(killed), first)
        .context("the members' logs do not show the failover")?;
    scene.bring_back(leader)?;
    Ok(CrashTimes {
        total_ms: first.at.ms_since(killed),
        phases,
    })
}

/// Returns the duration of each phase. `events` is in the order of time.
fn phases(killed: Moment, events: &[Event], first: Acknowledged) -> Option<BTreeMap<String, f64>> {
    let leads = |event: &&Event| event.what == What::Leads && event.at <= first.at;
    let elected = events.iter().find(leads)?.at;
    let successor = events
        .iter()
        .find(|event| leads(event) && event.by == first.by)?
        .at;
    let moves = events
        .iter()
        .filter(|event| event.what == What::QuorumMoved && event.at <= successor);
    let moved = moves
        .map(|event| event.at)
        .max()
        .unwrap_or(elected)
        .max(elected);
    let mut phases = BTreeMap::from([
        (DETECTION.to_owned(), elected.ms_since(killed)),
        (QUORUM_MOVE.to_owned(), moved.ms_since(elected)),
        (TRANSFER.to_owned(), successor.ms_since(moved)),
    ]);
    phases.extend(after_the_transfer(successor, events, first));
    Some(phases)
}

/// Returns the phases after the election of the database member.
pub(super) fn after_the_transfer(
    leads: Moment,
    events: &[Event],
    first: Acknowledged,
) -> BTreeMap<String, f64> {
    let of_heir = |what| {
        let mut events = events.iter();
        let found = events.find(|event| {
            event.what == what && event.by == first.by && (leads..=first.at).contains(&event.at)
        });
        found.map(|event| event.at)
    };
    let (ready, open) = (of_heir(What::Ready), of_heir(What::Open));
    let mut phases = BTreeMap::new();
    let mut last = leads;
    for (name, at) in [
        (CATCHING_UP, ready),
        (OPENING, open),
        (FIRST_COMMIT, Some(first.at)),
    ] {
        if let Some(at) = at {
            phases.insert(name.to_owned(), at.ms_since(last));
            last = at;
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ms: u64, by: usize, what: What) -> Event {
        Event {
            at: Moment(ms * 1000),
            by,
            what,
        }
    }

    fn named<const N: usize>(phases: [(&str, f64); N]) -> BTreeMap<String, f64> {
        let phases = phases.into_iter();
        phases.map(|(phase, ms)| (phase.to_owned(), ms)).collect()
    }

    #[test]
    fn phases_follow_each_other_and_sum_up() {
        let events = [
            event(360, 1, What::Leads),
            event(362, 1, What::Leads),
            event(420, 1, What::QuorumMoved),
            event(480, 1, What::QuorumMoved),
            event(511, 3, What::Leads),
            event(512, 3, What::Leads),
            event(600, 3, What::QuorumMoved),
        ];
        let first = Acknowledged {
            at: Moment(520_000),
            by: 3,
        };
        let found = phases(Moment(0), &events, first).unwrap();
        let expected = [
            (DETECTION, 360.0),
            (QUORUM_MOVE, 120.0),
            (TRANSFER, 31.0),
            (FIRST_COMMIT, 9.0),
        ];
        assert_eq!(found, named(expected));
        assert_eq!(phases(Moment(0), &events[..4], first), None);
        let with_mysqld = [
            events.as_slice(),
            &[
                event(514, 3, What::Ready),
                event(519, 3, What::Open),
                // An event of the old leader, which has restarted.
                event(519, 0, What::Ready),
            ],
        ]
        .concat();
        let found = phases(Moment(0), &with_mysqld, first).unwrap();
        let expected = [
            (DETECTION, 360.0),
            (QUORUM_MOVE, 120.0),
            (TRANSFER, 31.0),
            (CATCHING_UP, 3.0),
            (OPENING, 5.0),
            (FIRST_COMMIT, 1.0),
        ];
        assert_eq!(found, named(expected));
    }

    #[test]
    fn a_database_member_that_is_elected_itself_has_nothing_to_transfer() {
        let events = [event(360, 3, What::Leads)];
        let first = Acknowledged {
            at: Moment(370_000),
            by: 3,
        };
        let found = phases(Moment(0), &events, first).unwrap();
        assert_eq!((found[QUORUM_MOVE], found[TRANSFER]), (0.0, 0.0));
        assert_eq!(found[FIRST_COMMIT], 10.0);
    }
}
