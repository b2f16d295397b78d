//! Events in the ring that one member observed since its process started: differences between two successive observations.
//! A member always knows its own state, its log and the leader. It knows the others' state while it leads, or while a client
//! has its page open, for which it asks them. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use member::status::{MemberView, PauseView, Role};
use raft_types::MemberId;
use serde::Serialize;

use crate::operator::sentences::{Level, mysqld, span};
use crate::operator::{Directory, RingReport};

/// The number of events kept; the oldest are dropped.
const KEPT: usize = 200;
/// A peer answers if its last answer is within this time, and is silent after `SILENT_AFTER_SECONDS`. In between, nothing is
/// reported. With heartbeats so rare that answers are older, the leader's lease decides.
const ANSWERS_WITHIN_SECONDS: f64 = 2.0;
const SILENT_AFTER_SECONDS: f64 = 5.0;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// Time of observation, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) level: Level,
    /// A sentence without its full stop; names are in backticks.
    pub(crate) text: String,
}

/// The last events, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Events {
    known: Option<Facts>,
    kept: VecDeque<Event>,
}

impl Events {
    /// Records the current observation; `report` has the answers of the other members, if they were asked just now.
    pub(crate) fn see(&mut self, now_ms: u64, view: &MemberView, report: Option<&RingReport>) {
        let facts = Facts::new(now_ms, view, report, self.known.as_ref());
        let told = match &self.known {
            Some(before) => differences(before, &facts),
            None => vec![(
                Level::Note,
                format!("`{}` started, version {}", view.member.name, view.version),
            )],
        };
        let told = told.into_iter();
        self.kept.extend(told.map(|(level, text)| Event {
            at_ms: now_ms,
            level,
            text,
        }));
        self.kept.drain(..self.kept.len().saturating_sub(KEPT));
        self.known = Some(facts);
    }

    /// Starts from scratch: events so far are not reported again.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }

    /// All of them, the oldest first.
    pub(crate) fn kept(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.kept.iter()
    }
}

/// The leader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leading {
    Led {
        by: MemberId,
        term: u64,
    },
    /// This member leads, and too few members answer it.
    NoQuorum {
        cause: String,
    },
    Unknown,
}

/// The known state at one moment.
#[derive(Debug, Clone)]
struct Facts {
    own: MemberId,
    leading: Leading,
    /// Whether this member leads, and too few members answer it.
    lacks_quorum: bool,
    /// The last moment at which a leader with a quorum was seen.
    led_ms: u64,
    /// How long this member had no leader before the current one.
    leaderless_ms: Option<u64>,
    /// Since when this member leads, if it does.
    leads_since_ms: Option<u64>,
    pause: Option<PauseView>,
    policy: String,
    voter_sets: Vec<BTreeSet<MemberId>>,
    names: BTreeMap<MemberId, String>,
    /// Whether each member answers; for a missing one it is unknown.
    answers: BTreeMap<MemberId, bool>,
    /// The state of each mysqld; for a missing one it is unknown.
    mysqlds: BTreeMap<MemberId, String>,
    /// Transactions trimmed from the binlog of this member's mysqld.
    trimmed: u64,
    fault: Option<String>,
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
            // A new leader has no answers yet: two successive observations must agree.
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
        let leads_since_ms = (view.role == Role::Leader).then(|| {
            before
                .and_then(|before| before.leads_since_ms)
                .unwrap_or(now_ms)
        });
        let mut facts = Self {
            led_ms: match leading {
                Leading::Led { .. } if !lacks_quorum => now_ms,
                _ => led_before,
            },
            leading,
            leaderless_ms: view.activity.leaderless_ms,
            lacks_quorum,
            leads_since_ms,
            pause: view.pause.clone(),
            policy: view.rules.policy.to_string(),
            voter_sets: view.voter_sets.clone(),
            names: view
                .members
                .iter()
                .map(|member| (member.id, member.record.name.clone()))
                .collect(),
            // Members that were not asked this time keep their state.
            answers: before.map_or_else(BTreeMap::new, |before| before.answers.clone()),
            mysqlds: BTreeMap::new(),
            trimmed: view.mysql.as_ref().map_or(0, |mysql| mysql.trimmed_total),
            own,
            fault: view.fault.clone(),
        };
        facts.see_others(now_ms, view, report);
        if let Some(own_mysqld) = &view.mysql {
            facts.mysqlds.insert(own, kind_of(&mysqld(own_mysqld)));
        }
        facts
    }

    fn see_others(&mut self, now_ms: u64, view: &MemberView, report: Option<&RingReport>) {
        if let Some(report) = report {
            for member in &report.members {
                self.answers.insert(member.id, member.view.is_some());
                let seen = member.view.as_ref().and_then(|view| view.mysql.as_ref());
                if let Some(seen) = seen {
                    self.mysqlds.insert(member.id, kind_of(&mysqld(seen)));
                }
            }
            return;
        }
        let Some(since) = self.leads_since_ms else {
            return;
        };
        // A member that never answered counts as silent once this member has led for long enough.
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

    fn name(&self, id: MemberId) -> String {
        match self.names.get(&id) {
            Some(name) => format!("`{name}`"),
            None => format!("member {id}"),
        }
    }

    fn list(&self, members: &BTreeSet<MemberId>) -> String {
        let names: Vec<_> = members.iter().map(|id| self.name(*id)).collect();
        names.join(", ")
    }
}

/// Its state without its lag, which changes constantly.
fn kind_of(mysqld: &str) -> String {
    let end = match mysqld {
        _ if mysqld.starts_with("following") => mysqld.find(','),
        _ => mysqld.find(':'),
    };
    mysqld[..end.unwrap_or(mysqld.len())].to_owned()
}

fn differences(before: &Facts, now: &Facts) -> Vec<(Level, String)> {
    let mut told = Vec::new();
    for (id, answers) in &now.answers {
        match (before.answers.get(id), answers) {
            (Some(true), false) => {
                told.push((Level::Bad, format!("{} does not answer", now.name(*id))));
            }
            (Some(false), true) => {
                told.push((Level::Good, format!("{} answers again", now.name(*id))));
            }
            _ => {}
        }
    }
    told.extend(leading(before, now));
    for (id, mysqld) in &now.mysqlds {
        if let Some(was) = before.mysqlds.get(id).filter(|was| *was != mysqld) {
            let level = match mysqld.as_str() {
                "following" if was == "primary" => Level::Note,
                "primary" | "following" => Level::Good,
                "stopped" | "unreachable" | "primary, not protected" => Level::Bad,
                _ => Level::Note,
            };
            let name = now.name(*id);
            told.push((
                level,
                format!("the mysqld of {name}: {mysqld}, before: {was}"),
            ));
        }
    }
    // An outside observer may ask one member now and another member next.
    let trimmed_before = match before.own == now.own {
        true => before.trimmed,
        false => now.trimmed,
    };
    if let cut @ 1.. = now.trimmed.saturating_sub(trimmed_before) {
        let name = now.name(now.own);
        let were = match cut {
            1 => "transaction that the ring had not committed was",
            _ => "transactions that the ring had not committed were",
        };
        let text = format!("the mysqld of {name}: {cut} {were} cut off its binlog");
        told.push((Level::Note, text));
    }
    // A member that joins its ring learns of all members immediately; none of them was added then.
    if !before.names.is_empty() {
        let added = now.names.keys().filter(|id| !before.names.contains_key(id));
        told.extend(added.map(|id| {
            (
                Level::Note,
                format!("{} was added to the ring", now.name(*id)),
            )
        }));
        let gone = before.names.keys().filter(|id| !now.names.contains_key(id));
        told.extend(gone.map(|id| {
            (
                Level::Note,
                format!("{} was removed from the ring", before.name(*id)),
            )
        }));
        if before.voter_sets != now.voter_sets {
            let sets = now.voter_sets.iter();
            let sets: Vec<_> = sets
                .map(|set| format!("a majority of {}", now.list(set)))
                .collect();
            let text = format!("a commit needs {} now", sets.join(", and "));
            told.push((Level::Note, text));
        }
        if before.policy != now.policy {
            let (was, policy) = (&before.policy, &now.policy);
            told.push((
                Level::Note,
                format!("the policy is `{policy}`, before: `{was}`"),
            ));
        }
    }
    match (&before.pause, &now.pause) {
        (Some(_), None) => told.push((Level::Note, "maintenance mode ended".to_owned())),
        (was, Some(pause)) if was.as_ref().map(|was| was.since) != Some(pause.since) => {
            let primary = now.names.get(&pause.primary).map_or("?", String::as_str);
            let text = pause.sentence(primary);
            told.push((Level::Note, text.trim_end_matches('.').to_owned()));
        }
        _ => {}
    }
    if before.fault != now.fault {
        told.extend(
            now.fault
                .iter()
                .map(|why| (Level::Bad, format!("stopped working: {why}"))),
        );
    }
    told
}

/// A measured duration; under a minute with tenths of a second.
fn precise(milliseconds: u64) -> String {
    let seconds = milliseconds as f64 / 1e3;
    match milliseconds {
        0..60_000 => format!("{seconds:.1} s"),
        _ => span(seconds),
    }
}

fn leading(before: &Facts, now: &Facts) -> Option<(Level, String)> {
    if before.leading == now.leading {
        return None;
    }
    Some(match (&before.leading, &now.leading) {
        (was, Leading::Led { by, term }) => {
            let before = match was {
                Leading::Led { by: was, .. } if was == by => String::new(),
                Leading::Led { by: was, .. } => format!(", before: {}", now.name(*was)),
                // Much may have happened between two observations: the member's own measurement is used.
                Leading::Unknown => now.leaderless_ms.map_or_else(String::new, |measured| {
                    format!(", after {} without a leader", precise(measured))
                }),
                Leading::NoQuorum { .. } => {
                    let lost = now.led_ms.saturating_sub(before.led_ms) as f64 / 1e3;
                    format!(", after about {} without a quorum", span(lost))
                }
            };
            let name = now.name(*by);
            (Level::Good, format!("{name} leads in term {term}{before}"))
        }
        // The number of answers changes while members stop; that is still one event.
        (Leading::NoQuorum { .. }, Leading::NoQuorum { .. }) => return None,
        (_, Leading::NoQuorum { cause }) => {
            (Level::Bad, format!("no quorum: {cause}. Commits wait"))
        }
        (Leading::Led { by, .. }, Leading::Unknown) => {
            let name = now.name(*by);
            (
                Level::Bad,
                format!("{name} lost the leadership; no leader is known"),
            )
        }
        (_, Leading::Unknown) => (Level::Bad, "no leader is known".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use member::status::sample::{database_leader, witness_follower};

    use super::*;
    use crate::operator::Asked;

    /// The events for views that are one second apart.
    fn told(views: impl IntoIterator<Item = MemberView>) -> Vec<String> {
        let mut events = Events::default();
        for (second, view) in (1_u64..).zip(views) {
            events.see(second * 1_000, &view, None);
        }
        let told = events.kept().skip(1);
        told.map(|event| format!("{} {}", event.at_ms / 1_000, event.text))
            .collect()
    }

    #[test]
    fn a_failover_is_told_with_how_long_nobody_led() {
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
        // The observations are seconds apart; the switchover was shorter.
        assert_eq!(
            told([followed(), followed(), alone(), alone(), another]),
            [
                "3 `db-1` lost the leadership; no leader is known",
                "5 `witness-2` leads in term 4, after 0.3 s without a leader",
            ]
        );
    }

    #[test]
    fn a_leader_tells_of_silence_once_and_of_its_end() {
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
            told(views.chain(back)),
            [
                "4 `witness-1` does not answer",
                "6 `witness-1` answers again"
            ]
        );
        let rare = [0.1, 6.0, 7.0].map(|age| answered(Some(age)));
        assert!(told(rare).is_empty(), "the lease has not ended");
        let never = (0..20).map(|_| answered(None));
        assert!(told(never).is_empty(), "it was not known to answer before");
    }

    #[test]
    fn a_member_that_stops_responding_is_an_event_although_the_others_are_not_asked_all_the_time() {
        let witness = |answer| Asked::sample(2, "witness-1", answer);
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
        let last = events.kept().next_back().map(|event| event.text.as_str());
        assert_eq!(last, Some("`witness-1` does not answer"));
    }

    #[test]
    fn a_lost_quorum_is_one_event() {
        let mut lost = database_leader();
        lost.quorum.ok = false;
        lost.quorum.cause = Some("1 of 3 answer".to_owned());
        let mut worse = lost.clone();
        worse.quorum.cause = Some("0 of 3 answer".to_owned());
        assert_eq!(
            told([database_leader(), lost.clone(), worse, database_leader()]),
            [
                "3 no quorum: 0 of 3 answer. Commits wait",
                "4 `db-1` leads in term 3, after about 3s without a quorum",
            ]
        );
        let just_elected = told([witness_follower(), lost, database_leader()]);
        assert!(just_elected.is_empty(), "{just_elected:?}");
    }

    #[test]
    fn a_mysqld_changes_when_it_is_something_else_and_not_with_its_lag() {
        let with = |role: &str, following, lag_ms| {
            let mut view = database_leader();
            let mysql = view.mysql.as_mut().unwrap();
            (mysql.writable, mysql.role) = (role == "primary", role.to_owned());
            (mysql.following, mysql.lag_ms) = (following, lag_ms);
            view
        };
        let views = [
            with("following", true, Some(0)),
            with("following", true, Some(9_000)),
            with("catching up: 3 transactions behind", false, None),
            with("catching up: 2 transactions behind", false, None),
            with("primary", false, None),
        ];
        assert_eq!(
            told(views),
            [
                "3 the mysqld of `db-1`: catching up, before: following",
                "5 the mysqld of `db-1`: primary, before: catching up",
            ]
        );
    }

    #[test]
    fn what_was_trimmed_is_told_once() {
        let trimmed = |total| {
            let mut view = database_leader();
            view.mysql.as_mut().unwrap().trimmed_total = total;
            view
        };
        assert_eq!(
            told([0, 2, 2].map(trimmed)),
            [
                "2 the mysqld of `db-1`: 2 transactions that the ring had not committed were cut off its binlog"
            ]
        );
    }

    #[test]
    fn members_come_and_go_and_a_member_that_joins_finds_them() {
        let mut joining = witness_follower();
        joining.members.clear();
        let mut fewer = witness_follower();
        fewer.members.pop();
        fewer.voter_sets = vec![[1, 2].map(MemberId).into()];
        assert_eq!(
            told([joining, witness_follower(), fewer, witness_follower()]),
            [
                "3 `witness-2` was removed from the ring",
                "3 a commit needs a majority of `db-1`, `witness-1` now",
                "4 `witness-2` was added to the ring",
                "4 a commit needs a majority of `db-1`, `witness-1`, `witness-2` now",
            ]
        );
    }

    #[test]
    fn the_oldest_go() {
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
