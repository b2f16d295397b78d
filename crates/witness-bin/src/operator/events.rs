//! Events in the ring that one member observed since its process started: differences between two successive observations.
//! A member always has its own state, its log and the leader. It has the state of the other members only while it leads, or while
//! a client's request, such as an open page, makes it query them. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use member::status::{LoggedMember, MemberView, MysqlView, Role};
use raft_types::MemberId;

use crate::operator::{Directory, RingReport};
use crate::text::event::{Change, Event, LedAfter};
use crate::text::member::MysqldKind;

/// The number of events kept; the oldest are dropped.
const KEPT: usize = 200;
/// A leader's peer counts as answering if its last answer is younger than this, and as silent after `SILENT_AFTER_SECONDS`. At ages in
/// between, its recorded state remains. With long heartbeat intervals, a peer within the leader's lease never counts as silent.
const ANSWERS_WITHIN_SECONDS: f64 = 2.0;
const SILENT_AFTER_SECONDS: f64 = 5.0;

/// The last events, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Events {
    known: Option<Facts>,
    kept: VecDeque<Event>,
}

impl Events {
    /// Records the current observation; `report` has the answers of the other members, if they were queried just now.
    pub(crate) fn see(&mut self, now_ms: u64, view: &MemberView, report: Option<&RingReport>) {
        let facts = Facts::new(now_ms, view, report, self.known.as_ref());
        let changes = match &self.known {
            Some(before) => differences(before, &facts),
            None => vec![Change::Started {
                member: format!("`{}`", view.member.name),
                version: view.version.clone(),
            }],
        };
        let at_ms = now_ms;
        self.kept
            .extend(changes.into_iter().map(|change| Event { at_ms, change }));
        self.kept.drain(..self.kept.len().saturating_sub(KEPT));
        self.known = Some(facts);
    }

    /// Deletes the recorded events. The last observation remains, so the next one is still compared with it.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }

    /// Returns the recorded events, the oldest first.
    pub(crate) fn kept(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.kept.iter()
    }
}

/// The state of the leadership, as one member observes it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leading {
    Led {
        by: MemberId,
        term: u64,
    },
    /// The observing member leads, and too few members answer it.
    NoQuorum {
        cause: String,
    },
    Unknown,
}

/// The state of the ring at one moment, as far as it is known.
#[derive(Debug, Clone)]
struct Facts {
    view: MemberView,
    leading: Leading,
    /// Whether this member leads, and too few members answer it.
    lacks_quorum: bool,
    /// The last moment at which a leader with a quorum was observed.
    led_ms: u64,
    /// The first observation of this member's leadership; `None` while it does not lead.
    leads_since_ms: Option<u64>,
    /// True if each member answers; unknown for members that are not in the map.
    answers: BTreeMap<MemberId, bool>,
    /// The state of each member's mysqld; unknown for members that are not in the map.
    mysqlds: BTreeMap<MemberId, MysqldKind>,
}

impl Facts {
    fn new(
        now_ms: u64,
        view: &MemberView,
        report: Option<&RingReport>,
        before: Option<&Self>,
    ) -> Self {
        let own = view.member.id;
        let lacks_quorum = view.leader == Some(own) && !view.quorum.ok;
        let leading = match view.leader {
            // A new leader has no answers yet, so a lost quorum is recorded only if two successive observations show it.
            Some(_) if lacks_quorum && !before.is_some_and(|before| before.lacks_quorum) => {
                before.map_or(Leading::Unknown, |before| before.leading.clone())
            }
            Some(_) if lacks_quorum => Leading::NoQuorum {
                cause: Directory::of_log(view)
                    .with_names(view.quorum.cause.as_deref().unwrap_or_default()),
            },
            Some(by) => Leading::Led {
                by,
                term: view.term,
            },
            None => Leading::Unknown,
        };
        let led_before = before.map_or(now_ms, |before| before.led_ms);
        let led_since = before.and_then(|before| before.leads_since_ms);
        let mut facts = Self {
            led_ms: match leading {
                Leading::Led { .. } if !lacks_quorum => now_ms,
                _ => led_before,
            },
            leading,
            lacks_quorum,
            leads_since_ms: (view.role == Role::Leader).then(|| led_since.unwrap_or(now_ms)),
            // Members without a new answer keep their recorded state.
            answers: before.map_or_else(BTreeMap::new, |before| before.answers.clone()),
            mysqlds: BTreeMap::new(),
            view: view.clone(),
        };
        facts.see_others(now_ms, view, report);
        facts.see_mysqld(own, view.mysql.as_ref());
        facts
    }

    fn see_others(&mut self, now_ms: u64, view: &MemberView, report: Option<&RingReport>) {
        if let Some(report) = report {
            for member in &report.members {
                self.answers.insert(member.id, member.view.is_some());
                let seen = member.view.as_ref().and_then(|view| view.mysql.as_ref());
                self.see_mysqld(member.id, seen);
            }
            return;
        }
        let Some(since) = self.leads_since_ms else {
            return;
        };
        // For a peer that never answered, the age of its last answer is the time since this member became the leader.
        let led_seconds = now_ms.saturating_sub(since) as f64 / 1e3;
        for peer in &view.peers {
            let age = peer.answered_seconds.unwrap_or(led_seconds);
            let mut sets = view.voter_set_health.iter();
            let within_lease = sets.any(|set| set.answering.contains(&peer.id));
            if age < ANSWERS_WITHIN_SECONDS && peer.answered_seconds.is_some() {
                self.answers.insert(peer.id, true);
            } else if age > SILENT_AFTER_SECONDS && !within_lease {
                self.answers.insert(peer.id, false);
            }
        }
    }

    fn see_mysqld(&mut self, id: MemberId, mysql: Option<&MysqlView>) {
        self.mysqlds
            .extend(mysql.map(|mysql| (id, MysqldKind::of(mysql))));
    }

    fn member(&self, id: MemberId) -> Option<&LoggedMember> {
        self.view.members.iter().find(|member| member.id == id)
    }

    fn name(&self, id: MemberId) -> String {
        Directory::of_log(&self.view).name(id)
    }

    /// Transactions trimmed from the binlog of this member's mysqld.
    fn trimmed(&self) -> u64 {
        let mysql = self.view.mysql.as_ref();
        mysql.map_or(0, |mysql| mysql.trimmed_total)
    }

    fn list(&self, members: &BTreeSet<MemberId>) -> String {
        let names: Vec<_> = members.iter().map(|id| self.name(*id)).collect();
        names.join(", ")
    }
}

fn differences(before: &Facts, now: &Facts) -> Vec<Change> {
    let mut changes = Vec::new();
    for (id, answers) in &now.answers {
        let member = now.name(*id);
        match (before.answers.get(id), answers) {
            (Some(true), false) => changes.push(Change::Silent(member)),
            (Some(false), true) => changes.push(Change::Answers(member)),
            _ => {}
        }
    }
    changes.extend(leading(before, now));
    for (id, mysqld) in &now.mysqlds {
        let was = before.mysqlds.get(id).filter(|was| *was != mysqld);
        changes.extend(was.map(|was| Change::Mysqld {
            member: now.name(*id),
            was: *was,
            now: *mysqld,
        }));
    }
    // A command that follows events may query a different member each time. Only counters of the same member are compared.
    let own = now.view.member.id;
    let trimmed_before = match before.view.member.id == own {
        true => before.trimmed(),
        false => now.trimmed(),
    };
    if let transactions @ 1.. = now.trimmed().saturating_sub(trimmed_before) {
        let member = now.name(own);
        changes.push(Change::Trimmed {
            member,
            transactions,
        });
    }
    changes.extend(ring_changes(before, now));
    match (&before.view.pause, &now.view.pause) {
        (Some(_), None) => changes.push(Change::Resumed),
        (was, Some(pause)) if was.as_ref().map(|was| was.since) != Some(pause.since) => {
            let primary = now.member(pause.primary);
            let primary = primary.map_or("?", |primary| primary.record.name.as_str());
            changes.push(Change::Paused {
                pause: pause.clone(),
                primary: primary.to_owned(),
            });
        }
        _ => {}
    }
    if before.view.fault != now.view.fault {
        changes.extend(now.view.fault.clone().map(Change::Fault));
    }
    changes
}

/// Changes of the members, the voter sets and the policy.
fn ring_changes(before: &Facts, now: &Facts) -> Vec<Change> {
    // A member that joins its ring receives the whole list of members immediately. These members are not reported as added.
    if before.view.members.is_empty() {
        return Vec::new();
    }
    let mut changes = Vec::new();
    let members = now.view.members.iter().map(|member| member.id);
    let added = members.filter(|id| before.member(*id).is_none());
    changes.extend(added.map(|id| Change::Added(now.name(id))));
    let members = before.view.members.iter().map(|member| member.id);
    let gone = members.filter(|id| now.member(*id).is_none());
    changes.extend(gone.map(|id| Change::Removed(before.name(id))));
    if before.view.voter_sets != now.view.voter_sets {
        let sets = now.view.voter_sets.iter().map(|set| now.list(set));
        changes.push(Change::VoterSets(sets.collect()));
    }
    let [was, now] = [before, now].map(|facts| facts.view.rules.policy.to_string());
    if was != now {
        changes.push(Change::Policy { was, now });
    }
    changes
}

fn leading(before: &Facts, now: &Facts) -> Option<Change> {
    if before.leading == now.leading {
        return None;
    }
    Some(match (&before.leading, &now.leading) {
        (was, Leading::Led { by, term }) => Change::Leads {
            member: now.name(*by),
            term: *term,
            after: match was {
                Leading::Led { by: was, .. } if was == by => LedAfter::Itself,
                Leading::Led { by: was, .. } => LedAfter::Leader(now.name(*was)),
                // Observations are too rare to measure the time without a leader, so the member's own measurement is used.
                Leading::Unknown => LedAfter::NoLeader(now.view.activity.leaderless_ms),
                Leading::NoQuorum { .. } => {
                    let lost = now.led_ms.saturating_sub(before.led_ms) as f64 / 1e3;
                    LedAfter::NoQuorum(lost)
                }
            },
        },
        // The cause includes the number of answers, which changes while members stop. Only the first loss of the quorum is an event.
        (Leading::NoQuorum { .. }, Leading::NoQuorum { .. }) => return None,
        (_, Leading::NoQuorum { cause }) => Change::NoQuorum(cause.clone()),
        (Leading::Led { by, .. }, Leading::Unknown) => Change::NoLeader(Some(now.name(*by))),
        (_, Leading::Unknown) => Change::NoLeader(None),
    })
}

#[cfg(test)]
mod tests {
    use member::status::RoleState;
    use member::status::sample::{database_leader, witness_follower};

    use super::*;
    use crate::operator::MemberReport;

    /// Returns the events for views that are observed one second apart.
    fn observed(views: impl IntoIterator<Item = MemberView>) -> Vec<String> {
        let mut events = Events::default();
        for (second, view) in (1_u64..).zip(views) {
            events.see(second * 1_000, &view, None);
        }
        let later = events.kept().skip(1);
        later
            .map(|event| format!("{} {}", event.at_ms / 1_000, event.change))
            .collect()
    }

    #[test]
    fn a_failover_has_the_time_without_a_leader() {
        let followed = witness_follower;
        let alone = || MemberView {
            leader: None,
            ..followed()
        };
        let mut another = MemberView {
            leader: Some(MemberId(3)),
            term: 4,
            ..followed()
        };
        another.activity.leaderless_ms = Some(310);
        // The switchover was shorter than the time between two observations.
        assert_eq!(
            observed([followed(), followed(), alone(), alone(), another]),
            [
                "3 `db-1` lost the leadership; no leader is known",
                "5 `witness-2` leads in term 4, after 0.3 s without a leader",
            ]
        );
    }

    #[test]
    fn a_silent_member_is_one_event_and_its_next_answer_another() {
        let answered = |seconds| {
            let mut view = database_leader();
            view.peers[0].answered_seconds = seconds;
            view
        };
        let silent = |age| {
            let mut view = answered(Some(age));
            view.voter_set_health[0].answering.remove(&MemberId(2));
            view
        };
        let views = [0.1, 1.0].map(|age| answered(Some(age)));
        let views = views.into_iter().chain([3.0, 6.0, 17.0].map(silent));
        let back = [0.1, 10.0].map(|age| answered(Some(age)));
        assert_eq!(
            observed(views.chain(back)),
            [
                "4 `witness-1` does not answer",
                "6 `witness-1` answers again"
            ]
        );
        let rare = [0.1, 6.0, 7.0].map(|age| answered(Some(age)));
        assert!(observed(rare).is_empty(), "the lease has not ended");
        let never = (0..20).map(|_| answered(None));
        assert!(
            observed(never).is_empty(),
            "it was not known to answer before"
        );
    }

    #[test]
    fn a_member_that_stops_responding_is_an_event_although_the_others_are_not_asked_all_the_time() {
        let witness = |answer| MemberReport::sample(2, "witness-1", answer);
        let report = |answer| RingReport::new("orders", vec![witness(answer)]);
        let mut events = Events::default();
        events.see(
            1_000,
            &witness_follower(),
            Some(&report(Ok(witness_follower()))),
        );
        events.see(2_000, &witness_follower(), None);
        let silent = report(Err("connection refused".to_owned()));
        events.see(9_000, &witness_follower(), Some(&silent));
        let last = events.kept().next_back().map(|event| event.change.clone());
        let member = "`witness-1`".to_owned();
        assert_eq!(last, Some(Change::Silent(member)));
    }

    #[test]
    fn a_lost_quorum_is_one_event() {
        let mut lost = database_leader();
        lost.quorum.ok = false;
        lost.quorum.cause = Some("1 of 3 answer".to_owned());
        let mut worse = lost.clone();
        worse.quorum.cause = Some("0 of 3 answer".to_owned());
        assert_eq!(
            observed([database_leader(), lost.clone(), worse, database_leader()]),
            [
                "3 no quorum: 0 of 3 answer. Commits wait",
                "4 `db-1` leads in term 3, after about 3s without a quorum",
            ]
        );
        let just_elected = observed([witness_follower(), lost, database_leader()]);
        assert!(just_elected.is_empty(), "{just_elected:?}");
    }

    #[test]
    fn a_lag_is_no_event_of_a_mysqld() {
        let with = |role, following, lag_ms| {
            let mut view = database_leader();
            let mysql = view.mysql.as_mut().unwrap();
            (mysql.writable, mysql.role) = (role == RoleState::Primary, role);
            (mysql.following, mysql.lag_ms) = (following, lag_ms);
            view
        };
        let views = [
            with(RoleState::Following, true, Some(0)),
            with(RoleState::Following, true, Some(9_000)),
            with(RoleState::CatchingUp { lacks: 3 }, false, None),
            with(RoleState::CatchingUp { lacks: 2 }, false, None),
            with(RoleState::Primary, false, None),
        ];
        assert_eq!(
            observed(views),
            [
                "3 the mysqld of `db-1`: catching up, before: following",
                "5 the mysqld of `db-1`: primary, before: catching up",
            ]
        );
    }

    #[test]
    fn a_trim_is_one_event() {
        let trimmed = |total| {
            let mut view = database_leader();
            view.mysql.as_mut().unwrap().trimmed_total = total;
            view
        };
        assert_eq!(
            observed([0, 2, 2].map(trimmed)),
            [
                "2 the mysqld of `db-1`: 2 transactions that the ring had not committed were cut off its binlog"
            ]
        );
    }

    #[test]
    fn additions_and_removals_are_events_except_for_a_joining_member() {
        let mut joining = witness_follower();
        joining.members.clear();
        let mut fewer = witness_follower();
        fewer.members.pop();
        fewer.voter_sets = vec![[1, 2].map(MemberId).into()];
        assert_eq!(
            observed([joining, witness_follower(), fewer, witness_follower()]),
            [
                "3 `witness-2` was removed from the ring",
                "3 a commit needs a majority of `db-1`, `witness-1` now",
                "4 `witness-2` was added to the ring",
                "4 a commit needs a majority of `db-1`, `witness-1`, `witness-2` now",
            ]
        );
    }

    #[test]
    fn the_oldest_events_are_dropped() {
        let views = (0..).map(|term| MemberView {
            term,
            ..witness_follower()
        });
        let mut events = Events::default();
        for (at, view) in (0..).zip(views.take(2 * KEPT)) {
            events.see(at, &view, None);
        }
        assert_eq!(events.kept().count(), KEPT);
        let last = events.kept().next_back();
        assert!(last.is_some_and(|event| event.at_ms == 2 * KEPT as u64 - 1));
    }
}
