//! One crash: the leader's process is killed, and the first commit of its successor is waited for.

use anyhow::{Context, Result};

use super::acknowledgements::{Acknowledged, Moment};
use super::log_lines::{Event, What};
use super::scene::Scene;

/// How long one took, in milliseconds since the kill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CrashTimes {
    /// To the first commit that another member acknowledged.
    pub(super) total_ms: f64,
    pub(super) phases: Phases,
}

/// The parts of it, one after the other, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phases {
    /// Until another member is elected; nearly all of it is the wait for the dead leader.
    pub(super) detection: f64,
    /// Until the new leader's region is the quorum.
    pub(super) quorum_move: f64,
    /// Until a database member leads.
    pub(super) transfer: f64,
    /// Until it has committed.
    pub(super) first_commit: f64,
}

/// Kills the leader of a ring in which all is well, and starts it again afterwards.
pub(super) fn measure(scene: &mut Scene) -> Result<CrashTimes> {
    let leader = scene.settled()?;
    scene.say(&format!("{} is killed", scene.name(leader)));
    let killed = Moment::now();
    scene.kill(leader)?;
    let first = scene.first_commit(killed, leader)?;
    let phases = phases(killed, &scene.events(killed), first)
        .context("the members' logs do not tell how the failover went")?;
    scene.start(leader, false)?;
    Ok(CrashTimes {
        total_ms: first.at.ms_since(killed),
        phases,
    })
}

/// `events` in the order of time.
fn phases(killed: Moment, events: &[Event], first: Acknowledged) -> Option<Phases> {
    let leads = |event: &&Event| event.what == What::Leads && event.at <= first.at;
    let elected = events.iter().find(leads)?.at;
    let heir = events
        .iter()
        .find(|event| leads(event) && event.by == first.by)?
        .at;
    let moves = events
        .iter()
        .filter(|event| event.what == What::QuorumMoved && event.at <= heir);
    let moved = moves
        .map(|event| event.at)
        .max()
        .unwrap_or(elected)
        .max(elected);
    Some(Phases {
        detection: elected.ms_since(killed),
        quorum_move: moved.ms_since(elected),
        transfer: heir.ms_since(moved),
        first_commit: first.at.ms_since(heir),
    })
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
        assert_eq!(
            found,
            Phases {
                detection: 360.0,
                quorum_move: 120.0,
                transfer: 31.0,
                first_commit: 9.0,
            }
        );
        assert_eq!(phases(Moment(0), &events[..4], first), None);
    }

    #[test]
    fn a_database_member_that_is_elected_itself_has_nothing_to_transfer() {
        let events = [event(360, 3, What::Leads)];
        let first = Acknowledged {
            at: Moment(370_000),
            by: 3,
        };
        let found = phases(Moment(0), &events, first).unwrap();
        assert_eq!((found.quorum_move, found.transfer), (0.0, 0.0));
        assert_eq!(found.first_commit, 10.0);
    }
}
