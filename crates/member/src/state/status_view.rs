//! Makes a member's view of its ring from its Raft, and records the leaders and lost quorums that it has observed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consensus::Leadership;
use raft_types::{MemberId, UnixSeconds};
use ring_admin::{Identity, LeaderTask, Member, MemberStatus, ScheduledSwitchover};
use tokio::time::Instant;

use crate::ring_handle::leader;
use crate::settings::{MemberEntry, Settings};
use crate::status::{
    ActivityView, FormatsView, LoggedMember, MemberName, MemberView, PauseView, PeerView,
    ProgramView, QuorumView, RingName, Role, start_advice,
};

/// Returns a member's view of its ring, without the reports of its other parts. `raft` is `None` before the member takes part in its ring.
/// `quorum_lost_for` is how long commits have been blocked.
pub(crate) fn ring_status(
    config: &Settings,
    identity: &Identity,
    raft: Option<&MemberStatus>,
    quorum_lost_for: Option<Duration>,
    now: UnixSeconds,
) -> MemberView {
    let own = &config.own;
    let lost_for_seconds = quorum_lost_for.map(|lost| lost.as_secs_f64());
    let outside = MemberView {
        ring: RingName {
            id: identity.ring.ring(),
            name: config.ring_name.clone(),
        },
        member: MemberName {
            id: own.id,
            name: own.name.clone(),
            region: own.region.clone(),
            kind: own.kind,
            votes: own.votes,
            address: own.address.clone(),
            incarnation: identity.incarnation,
        },
        version: config.program.version.clone(),
        client_addresses: config.client_addresses.clone(),
        rules: config.rules.clone(),
        configured_rules: Some(config.rules.clone()),
        quorum: QuorumView {
            ok: false,
            lost_for_seconds,
            cause: Some("the ring is not bootstrapped, or this member has not joined it".into()),
            fix: Some(
                "start every member, and run `witness bootstrap` on the host of one if there is no ring yet"
                    .into(),
            ),
        },
        formats: Some(FormatsView {
            speaks: config.program.formats,
            ring: None,
            refused: None,
            others: Vec::new(),
        }),
        ..MemberView::default()
    };
    let Some(raft) = raft else { return outside };
    let leads = raft.leadership.leading_term().is_some();
    let quorum_sets = raft.quorum.as_ref().map(|quorum| quorum.sets.clone());
    let members = raft.ring_view.members.iter();
    let members = members.map(|peer| LoggedMember {
        id: peer.id,
        voter: peer.voter,
        // The history is omitted, because `witness history` and `GET /history` return it.
        record: ring_admin::without_history(peer.record.clone()),
    });
    let programs = raft.formats.others.iter();
    let programs = programs.map(|(id, program)| ProgramView {
        id: *id,
        version: program.version.clone(),
        speaks: program.formats,
    });
    MemberView {
        role: role(raft),
        serving: raft.leadership.serving_term().is_some(),
        not_serving: not_serving(raft),
        stays_out_of_elections: raft.stays_out_of_elections.clone(),
        restored: raft.restored.clone(),
        leader: leader(raft.leadership, raft.member),
        term: raft.term.0,
        log_end: raft.ring_view.last_log,
        committed: raft.committed,
        activity: ActivityView {
            proposals_bytes: raft.proposals_bytes,
            ..ActivityView::default()
        },
        quorum: quorum(raft, config, lost_for_seconds),
        rules: raft.rules.clone(),
        voter_sets: raft.ring_view.voter_sets.clone(),
        voter_set_health: quorum_sets.unwrap_or_default(),
        regions: raft.regions.clone(),
        explanation: raft.explanation.clone(),
        members: members.collect(),
        peers: peers(raft),
        pause: (raft.pause.clone()).map(|paused| PauseView::new(paused, now)),
        timers: Some(raft.timers.into()),
        formats: Some(FormatsView {
            speaks: config.program.formats,
            ring: Some(raft.formats.ring),
            // A leader accepts no entries of others, so it cannot refuse any.
            refused: raft.formats.refused.clone().filter(|_| !leads),
            others: programs.collect(),
        }),
        scheduled_switchover: ScheduledSwitchover::of(&raft.ring_view),
        fault: raft.fault.as_ref().map(ToString::to_string),
        ..outside
    }
}

fn quorum(raft: &MemberStatus, config: &Settings, lost_for_seconds: Option<f64>) -> QuorumView {
    if has_quorum(raft) {
        return QuorumView {
            ok: true,
            ..QuorumView::default()
        };
    }
    let members = &config.members;
    let (cause, fix) = match &raft.quorum {
        Some(health) => {
            let unmet = health.sets.iter().filter(|set| !set.is_met());
            let silent = unmet.flat_map(|set| set.silent.iter().copied());
            (health.to_string(), start_members(members, silent))
        }
        None => {
            let others = members.iter().map(|member| member.id);
            let others = others.filter(|id| *id != config.own.id);
            ("no leader is known".into(), start_members(members, others))
        }
    };
    QuorumView {
        ok: false,
        lost_for_seconds,
        cause: Some(cause),
        fix: Some(fix),
    }
}

/// Returns true if commits can proceed, as far as the member knows.
pub(crate) fn has_quorum(raft: &MemberStatus) -> bool {
    match (&raft.quorum, &raft.leadership) {
        (Some(health), _) => health.ok,
        (None, Leadership::Follower { leader }) => leader.is_some(),
        (None, _) => false,
    }
}

/// Returns the command that starts the silent members, to restore the quorum.
fn start_members(members: &[MemberEntry], silent: impl Iterator<Item = MemberId>) -> String {
    let mut named = Vec::new();
    for id in silent {
        let entry = members.iter().find(|member| member.id == id);
        let name = entry.map_or_else(
            || format!("member {id}"),
            |entry| format!("`{}` ({})", entry.name, entry.address),
        );
        if !named.contains(&name) {
            named.push(name);
        }
    }
    let start = start_advice(&named.join(" or "));
    format!("{start}, or fix the network between them")
}

fn role(raft: &MemberStatus) -> Role {
    let own = raft.ring_view.member(raft.member);
    match raft.leadership {
        Leadership::Candidate => Role::Candidate,
        Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => Role::Leader,
        Leadership::Follower { .. } if own.is_some_and(|own| own.voter) => Role::Follower,
        Leadership::Follower { .. } => Role::Learner,
    }
}

/// Returns why a leader does not serve. A leading witness does not serve clients by design, so it reports what it waits for.
fn not_serving(raft: &MemberStatus) -> Option<String> {
    let task = || match raft.leader_task.as_ref()? {
        LeaderTask::Waiting(why) => Some(why.clone()),
        LeaderTask::Transferring(to) => {
            Some(format!("it is transferring the leadership to member {to}"))
        }
        LeaderTask::MovingQuorum { target, .. } => {
            let target = (*target)?;
            let why = format!("it is moving the quorum, so that member {target} can lead");
            Some(why)
        }
    };
    let why = raft.leadership.not_serving();
    why.map(|why| why.to_string()).or_else(task)
}

fn peers(raft: &MemberStatus) -> Vec<PeerView> {
    let members = raft.ring_view.members.iter();
    let others = members.filter(|peer| peer.id != raft.member);
    let views = others.map(|peer| PeerView {
        id: peer.id,
        name: peer.record.name.clone(),
        region: peer.record.region.clone(),
        kind: peer.record.kind,
        address: peer.record.address.clone(),
        voter: peer.voter,
        matched: peer.matched,
        behind_entries: peer.lag,
        answered_seconds: peer.answered.map(|age| age.as_secs_f64()),
    });
    views.collect()
}

/// Interval between two checks of the quorum, if there are no other events.
const LOOK: Duration = Duration::from_secs(1);

/// What a member remembers between two checks: since when the quorum is lost, how often the leader changed, and how often this member was
/// elected.
#[derive(Debug)]
pub(crate) struct Observer(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    quorum_lost: Option<Instant>,
    leader: Option<MemberId>,
    /// Since when no leader is known.
    leaderless: Option<Instant>,
    leading_term: u64,
    seen: Remembered,
}

/// The remembered values at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) quorum_lost_for: Option<Duration>,
    /// How long no leader was known before the present leader, or the last one.
    pub(crate) last_leaderless: Option<Duration>,
    pub(crate) elections_won: u64,
    pub(crate) leader_changes: u64,
}

impl Observer {
    /// Creates the state before the first check, in which there is no quorum.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Memory {
            quorum_lost: Some(Instant::now()),
            ..Memory::default()
        }))
    }

    /// Checks periodically and at each change of the leadership, while polled.
    pub(crate) async fn observe(&self, member: Member) {
        let mut leadership = member.leadership();
        loop {
            let now = *leadership.borrow_and_update();
            self.note_leadership(now, member.id());
            self.note_quorum(has_quorum(&member.status()));
            let changed = tokio::time::timeout(LOOK, leadership.changed()).await;
            if matches!(changed, Ok(Err(_))) {
                self.note_quorum(false);
                return;
            }
        }
    }

    pub(crate) fn remembered(&self) -> Remembered {
        let memory = self.lock();
        Remembered {
            quorum_lost_for: memory.quorum_lost.map(|since| since.elapsed()),
            ..memory.seen
        }
    }

    fn note_quorum(&self, ok: bool) {
        let mut memory = self.lock();
        let since = memory.quorum_lost.unwrap_or_else(Instant::now);
        memory.quorum_lost = (!ok).then_some(since);
    }

    fn note_leadership(&self, now: Leadership, own: MemberId) {
        let mut memory = self.lock();
        let leader = leader(now, own);
        if let Some(term) = now.leading_term()
            && term.0 > memory.leading_term
        {
            memory.leading_term = term.0;
            memory.seen.elections_won += 1;
        }
        if leader.is_none() {
            // The time before the first leader since the start does not count as a time without a leader.
            if memory.leader.is_some() {
                memory.leaderless.get_or_insert_with(Instant::now);
            }
            // A short time without a leader is common, and does not count as a change of the leader.
            return;
        }
        let since = memory.leaderless.take();
        if since.is_some() || leader != memory.leader {
            memory.seen.last_leaderless = since.map(|since| since.elapsed());
        }
        let before = std::mem::replace(&mut memory.leader, leader);
        if before.is_some() && before != leader {
            memory.seen.leader_changes += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // The fields do not depend on each other, so the state is valid even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use consensus::Term;

    use super::*;

    const OWN: MemberId = MemberId(1);

    fn follows(leader: Option<u64>) -> Leadership {
        Leadership::Follower {
            leader: leader.map(MemberId),
        }
    }

    #[test]
    fn changes_of_the_leader_are_counted_once() {
        let observer = Observer::new();
        let serving = Leadership::Serving { term: Term(4) };
        let steps = [
            follows(None),
            follows(Some(2)),
            follows(None),
            follows(Some(2)),
            serving,
            serving,
        ];
        for step in steps {
            observer.note_leadership(step, OWN);
        }
        let seen = observer.remembered();
        assert_eq!((seen.leader_changes, seen.elections_won), (1, 1));
        observer.note_leadership(follows(Some(3)), OWN);
        observer.note_leadership(Leadership::Serving { term: Term(6) }, OWN);
        let seen = observer.remembered();
        assert_eq!((seen.leader_changes, seen.elections_won), (3, 2));
    }

    #[test]
    fn the_time_without_a_leader_is_measured_between_two_leaders() {
        let observer = Observer::new();
        let last = || observer.remembered().last_leaderless;
        for step in [follows(None), follows(Some(2)), Leadership::Candidate] {
            observer.note_leadership(step, OWN);
            assert_eq!(last(), None);
        }
        std::thread::sleep(Duration::from_millis(5));
        observer.note_leadership(follows(None), OWN);
        observer.note_leadership(follows(Some(3)), OWN);
        let first = last().unwrap();
        assert!(first >= Duration::from_millis(5));
        observer.note_leadership(follows(Some(3)), OWN);
        assert_eq!(last(), Some(first));
        // The next leader is known at the same moment.
        observer.note_leadership(follows(Some(2)), OWN);
        assert_eq!(last(), None);
    }

    #[test]
    fn a_lost_quorum_has_an_age_until_it_is_back() {
        let observer = Observer::new();
        assert!(observer.remembered().quorum_lost_for.is_some());
        observer.note_quorum(true);
        assert_eq!(observer.remembered().quorum_lost_for, None);
        observer.note_quorum(false);
        let first = observer.remembered().quorum_lost_for.unwrap();
        std::thread::sleep(Duration::from_millis(5));
        observer.note_quorum(false);
        assert!(observer.remembered().quorum_lost_for.unwrap() > first);
    }
}
