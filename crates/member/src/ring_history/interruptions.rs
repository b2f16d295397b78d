//! Detects interruptions between two consecutive observations of this member's own view. These are: clients can no longer write to its
//! mysqld, or can write again; the quorum is lost, or back. Further events are members that no longer answer this leader, and starts of
//! mysqld that are open for writes. Pure functions.

use std::collections::BTreeSet;

use consensus::{HistoryEvent, Named};
use raft_types::MemberId;

use crate::status::{MemberView, MysqlView, PeerView, Question, Role, answer};

/// The loss of a quorum is only recorded after this time. If the quorum is back earlier, the cause was an election, or a new leader.
const QUORUM_LOST_MS: u64 = 3_000;
/// A peer counts as lost after the first time plus the lease. It is back when its last answer is younger than the second time.
const PEER_LOST_MS: u64 = 5_000;
const PEER_BACK_MS: u64 = 2_000;

/// The beginning or end of an interruption, with its time in milliseconds since 1970.
pub(super) type At = (u64, HistoryEvent);

/// State from the observations so far.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    /// The lease. After a leader's start, it takes this time until the leader detects that no quorum answers.
    lease_ms: u64,
    /// Set while clients can write to this member's mysqld: the last moment when that was certain.
    pub(super) open_until: Option<u64>,
    /// Since when mysqld is unfit to be the primary, although it seems to be open.
    unfit_since: Option<u64>,
    quorum_lost: bool,
    /// Since when this member has led.
    leads_since: Option<u64>,
    lost: BTreeSet<MemberId>,
    /// The number of transactions that the ring lacked at all attachments so far.
    not_in_ring: u64,
    told_open: Option<u64>,
}

impl Interruptions {
    pub(super) fn new(lease_ms: u64) -> Self {
        Self {
            lease_ms,
            ..Self::default()
        }
    }

    /// Returns the beginnings and ends of interruptions since the last observation.
    pub(super) fn see(&mut self, now_ms: u64, view: &MemberView) -> Vec<At> {
        let mut seen = Vec::new();
        seen.extend(self.quorum(now_ms, view));
        seen.extend(self.exposed(view).map(|event| (now_ms, event)));
        seen.extend(self.writes(now_ms, view));
        self.peers(now_ms, view, &mut seen);
        seen
    }

    fn writes(&mut self, now_ms: u64, view: &MemberView) -> Option<At> {
        let mysql = view.mysql.as_ref();
        let unfit = mysql.is_some_and(|mysql| mysql.demotion.is_some());
        match (answer(Question::Primary, view), self.open_until) {
            (Ok(()), before) => {
                let certain = now_ms.saturating_sub(mysql.map_or(0, uncertain_ms));
                self.open_until = Some(certain.max(before.unwrap_or(now_ms)));
                self.unfit_since = unfit.then(|| self.unfit_since.unwrap_or(certain));
                before.is_none().then(|| {
                    let member = named(view);
                    (now_ms, HistoryEvent::WritesResumed { member })
                })
            }
            (Err(why), Some(certain)) => {
                self.open_until = None;
                let silent = mysql.is_none_or(|mysql| mysql.trouble.is_some() || !mysql.protected);
                let at = match (view.quorum.ok, silent) {
                    (false, _) => certain.min(now_ms.saturating_sub(self.lease_ms)),
                    (true, true) => certain,
                    (true, false) => now_ms,
                };
                let at = self.unfit_since.take().map_or(at, |since| at.min(since));
                let (member, why) = (named(view), why.to_string());
                Some((at, HistoryEvent::WritesStopped { member, why }))
            }
            (Err(_), None) => None,
        }
    }

    /// Returns the event of a start that was open for writes. It is due when the number of transactions committed without the ring is
    /// known, after they have been received or compared.
    fn exposed(&mut self, view: &MemberView) -> Option<HistoryEvent> {
        let mysql = view.mysql.as_ref()?;
        let more = mysql.not_in_ring_total.saturating_sub(self.not_in_ring);
        // If `started_open` is `None`, the count of starts was reset, as after `witness disable-raft`.
        if mysql.started_open.is_none() || mysql.started_open == self.told_open {
            self.told_open = mysql.started_open;
            self.not_in_ring = mysql.not_in_ring_total;
            return None;
        }
        let transactions = match &mysql.errant {
            Some(errant) => errant.transactions,
            None if mysql.ingesting || mysql.following => more,
            None => return None,
        };
        self.told_open = mysql.started_open;
        self.not_in_ring = mysql.not_in_ring_total;
        Some(HistoryEvent::Exposed {
            member: named(view),
            transactions,
        })
    }

    fn quorum(&mut self, now_ms: u64, view: &MemberView) -> Option<At> {
        let lost = view.quorum.lost_for_seconds;
        let lost_ms = lost.map_or(0, |lost| (lost * 1e3) as u64);
        let member = named(view);
        match (view.quorum.ok, self.quorum_lost) {
            (true, true) => {
                self.quorum_lost = false;
                Some((now_ms, HistoryEvent::QuorumBack { member }))
            }
            (false, false) if lost_ms >= QUORUM_LOST_MS => {
                self.quorum_lost = true;
                let why = view.quorum.cause.clone().unwrap_or_default();
                let at = now_ms.saturating_sub(lost_ms + self.lease_ms);
                Some((at, HistoryEvent::QuorumLost { member, why }))
            }
            _ => None,
        }
    }

    /// Records lost members. Only a leader calls all other members.
    fn peers(&mut self, now_ms: u64, view: &MemberView, seen: &mut Vec<At>) {
        if view.role != Role::Leader {
            self.leads_since = None;
            self.lost.clear();
            return;
        }
        let leads_since = *self.leads_since.get_or_insert(now_ms);
        for peer in &view.peers {
            let age = peer.answered_seconds.map(|age| (age * 1e3) as u64);
            let silent_ms = age.unwrap_or(now_ms - leads_since.min(now_ms));
            let member = Named {
                id: peer.id,
                name: peer.name.clone(),
            };
            let is_lost = self.lost.contains(&peer.id);
            if !is_lost && silent_ms > PEER_LOST_MS && !answers_in_lease(peer, view) {
                self.lost.insert(peer.id);
                let at = now_ms.saturating_sub(silent_ms);
                seen.push((at, HistoryEvent::MemberLost { member }));
            } else if is_lost && age.is_some_and(|age| age < PEER_BACK_MS) {
                self.lost.remove(&peer.id);
                seen.push((now_ms, HistoryEvent::MemberBack { member }));
            }
        }
        let peers = &view.peers;
        self.lost
            .retain(|id| peers.iter().any(|peer| peer.id == *id));
    }
}

/// Returns for how long writes may have stopped unnoticed: since mysqld's last check, or since a commit began to wait.
fn uncertain_ms(mysql: &MysqlView) -> u64 {
    let waits = mysql.oldest_unacked_seconds.unwrap_or(0.0);
    mysql.examined_ms.unwrap_or(0).max((waits * 1e3) as u64)
}

fn answers_in_lease(peer: &PeerView, view: &MemberView) -> bool {
    let mut sets = view.voter_set_health.iter();
    sets.any(|set| set.answering.contains(&peer.id))
}

fn named(view: &MemberView) -> Named {
    Named {
        id: view.member.id,
        name: view.member.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::sample::{database_leader, witness_follower};

    const LEASE_MS: u64 = 1_000;

    /// Returns the entries for these views, as `time event member`. Each view has its time in milliseconds.
    fn noted(views: impl IntoIterator<Item = (u64, MemberView)>) -> Vec<String> {
        let mut interruptions = Interruptions::new(LEASE_MS);
        let mut all = Vec::new();
        for (now_ms, view) in views {
            for (at, event) in interruptions.see(now_ms, &view) {
                let json = serde_json::to_value(&event).unwrap();
                let member = &json["member"]["name"];
                all.push(format!("{at} {} {member}", json["event"]).replace('"', ""));
            }
        }
        all
    }

    fn with(change: impl FnOnce(&mut MemberView)) -> MemberView {
        let mut view = database_leader();
        view.mysql.as_mut().unwrap().oldest_unacked_seconds = None;
        change(&mut view);
        view
    }

    #[test]
    fn every_stop_of_writes_has_its_begin_and_its_end() {
        let open = || with(|_| ());
        let closed = || with(|view| view.mysql.as_mut().unwrap().writable = false);
        let views = [
            (1_000, open()),
            (2_000, open()),
            (2_300, closed()),
            (2_600, closed()),
        ];
        // When mysqld opens after its member began to lead, there is an entry for that.
        let views = views.into_iter().chain([(33_000, open())]);
        assert_eq!(
            noted(views),
            [
                "1000 writes_resumed db-1",
                "2300 writes_stopped db-1",
                "33000 writes_resumed db-1"
            ]
        );
    }

    #[test]
    fn a_start_open_for_writes_is_recorded_with_the_missing_transactions() {
        let looked = |start, ingesting, not_in_ring: u64| {
            with(|view| {
                let mysql = view.mysql.as_mut().unwrap();
                (mysql.started_open, mysql.ingesting) = (start, ingesting);
                mysql.not_in_ring_total = not_in_ring;
            })
        };
        let mut interruptions = Interruptions::new(LEASE_MS);
        let mut exposed = |view: MemberView| {
            let seen = interruptions.see(1_000, &view).into_iter();
            let mut counts = seen.filter_map(|(_, event)| match event {
                HistoryEvent::Exposed { transactions, .. } => Some(transactions),
                _ => None,
            });
            counts.next()
        };
        // Transactions of the time before mysqld belonged to the ring do not count.
        assert_eq!(exposed(looked(None, true, 400)), None);
        assert_eq!(exposed(looked(Some(2), false, 400)), None);
        assert_eq!(exposed(looked(Some(2), true, 407)), Some(7));
        assert_eq!(exposed(looked(Some(2), true, 407)), None);
        assert_eq!(exposed(looked(Some(3), true, 407)), Some(0));
        // If a member stopped managing mysqld and began again, the count of starts begins again.
        assert_eq!(exposed(looked(None, true, 407)), None);
        assert_eq!(exposed(looked(Some(3), true, 408)), Some(1));
    }

    #[test]
    fn a_mysqld_that_hung_stopped_when_it_was_last_known_to_work() {
        let hung = |age: u64| {
            with(|view| {
                let mysql = view.mysql.as_mut().unwrap();
                (mysql.examined_ms, mysql.protected) = (Some(age), age < 3_500);
            })
        };
        let views = [
            (10_000, hung(200)),
            (11_000, hung(200)),
            (14_000, hung(3_200)),
            (15_000, hung(4_200)),
        ];
        assert_eq!(
            noted(views),
            ["10000 writes_resumed db-1", "10800 writes_stopped db-1"]
        );
        // The primary's health check detects a mysqld that answers but commits nothing.
        let unfit = |unfit: bool, leads: bool| {
            with(|view| {
                let mysql = view.mysql.as_mut().unwrap();
                mysql.demotion = unfit.then(|| "no commit finishes".to_owned());
                view.serving = leads;
            })
        };
        let views = [
            (1_000, unfit(false, true)),
            (5_000, unfit(true, true)),
            (30_000, unfit(true, false)),
        ];
        assert_eq!(
            noted(views),
            ["1000 writes_resumed db-1", "4800 writes_stopped db-1"]
        );
    }

    #[test]
    fn a_lost_quorum_begins_a_lease_before_it_is_noticed_and_ends() {
        let lost = |seconds| {
            with(|view| {
                (view.serving, view.quorum.ok) = (false, false);
                view.quorum.lost_for_seconds = Some(seconds);
                view.quorum.cause = Some("1 of 3 voters answer".to_owned());
            })
        };
        let open = || with(|_| ());
        let views = [
            (10_000, open()),
            (11_500, lost(0.0)),
            (15_500, lost(4.0)),
            (50_000, lost(38.5)),
            (54_500, open()),
        ];
        assert_eq!(
            noted(views),
            [
                "10000 writes_resumed db-1",
                "10000 writes_stopped db-1",
                "10500 quorum_lost db-1",
                "54500 quorum_back db-1",
                "54500 writes_resumed db-1",
            ]
        );
        // A follower without a leader also records a lost quorum. An election does not count as one.
        let follower = |seconds: Option<f64>| {
            let mut view = witness_follower();
            (view.quorum.ok, view.quorum.lost_for_seconds) = (seconds.is_none(), seconds);
            view
        };
        let election = [
            (1_000, follower(None)),
            (3_000, follower(Some(1.5))),
            (4_000, follower(None)),
        ];
        assert_eq!(noted(election), [""; 0]);
        let long = [
            (1_000, follower(None)),
            (6_000, follower(Some(4.0))),
            (9_000, follower(None)),
        ];
        assert_eq!(
            noted(long),
            ["1000 quorum_lost witness-1", "9000 quorum_back witness-1"]
        );
    }

    #[test]
    fn a_leader_notes_members_that_are_lost_and_come_back() {
        let answered = |age: f64, in_lease: bool| {
            with(|view| {
                view.peers[0].answered_seconds = Some(age);
                if !in_lease {
                    view.voter_set_health[0].answering.remove(&MemberId(2));
                }
            })
        };
        let views = [
            (10_000, answered(0.1, true)),
            (16_000, answered(6.0, false)),
            (17_000, answered(7.0, false)),
            (40_000, answered(0.2, true)),
            (47_000, answered(7.0, true)),
        ];
        let expected = [
            "10000 writes_resumed db-1",
            "10000 member_lost witness-1",
            "40000 member_back witness-1",
        ];
        assert_eq!(noted(views), expected);
    }
}
