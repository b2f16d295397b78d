//! Assembles a member's view from its parts' reports. Pure: other code queries the parts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consensus::{Leadership, RingMember};
use raft_types::{MemberId, UnixSeconds};
use ring_admin::{Identity, Member, MemberStatus, ScheduledSwitchover};
use tokio::time::Instant;

use crate::settings::{MemberEntry, Settings};
use crate::status::{
    ActivityView, ArchiveView, ConsumerView, FormatsView, HooksView, LogView, LoggedMember,
    MemberName, MemberView, MysqlView, PauseView, PeerView, ProgramView, QuorumView,
    ReplicationRoutesView, RingName, Role, start_advice,
};

/// Reports of a member's parts at one moment.
pub(crate) struct StatusView<'a> {
    pub(crate) config: &'a Settings,
    pub(crate) identity: Identity,
    pub(crate) uptime: Duration,
    /// None before the member takes part.
    pub(crate) raft: Option<MemberStatus>,
    pub(crate) log: LogView,
    pub(crate) activity: ActivityView,
    /// How long commits have been blocked.
    pub(crate) quorum_lost_for: Option<Duration>,
    pub(crate) mysql: Option<MysqlView>,
    /// None without a binlog server.
    pub(crate) consumers: Option<Vec<ConsumerView>>,
    /// None before the member takes part.
    pub(crate) routes: Option<ReplicationRoutesView>,
    pub(crate) fault: Option<String>,
    pub(crate) archive: Option<ArchiveView>,
    pub(crate) hooks: Option<HooksView>,
    pub(crate) now: UnixSeconds,
}

impl StatusView<'_> {
    /// The status for HTTP and `witness status`.
    pub(crate) fn view(self) -> MemberView {
        let own = &self.config.own;
        let quorum = self.quorum();
        let raft = self.raft.as_ref();
        MemberView {
            ring: RingName {
                id: self.identity.ring.ring(),
                name: self.config.ring_name.clone(),
            },
            member: MemberName {
                id: own.id,
                name: own.name.clone(),
                region: own.region.clone(),
                kind: own.kind,
                votes: own.votes,
                address: own.address.clone(),
                incarnation: self.identity.incarnation,
            },
            version: self.config.program.version.clone(),
            uptime_seconds: self.uptime.as_secs_f64(),
            client_addresses: self.config.client_addresses.clone(),
            role: raft.map_or(Role::Joining, role),
            serving: raft.is_some_and(|raft| raft.leadership.serving_term().is_some()),
            not_serving: raft.and_then(not_serving),
            stays_out_of_elections: raft.and_then(|raft| raft.stays_out_of_elections.clone()),
            put_back: raft.map(|raft| raft.put_back.clone()).unwrap_or_default(),
            leader: raft.and_then(leader),
            term: raft.map_or(0, |raft| raft.term.0),
            log_end: raft.and_then(|raft| raft.ring_view.last_log),
            committed: raft.and_then(|raft| raft.committed),
            rules: raft.map_or_else(|| self.config.rules.clone(), |raft| raft.rules.clone()),
            configured_rules: Some(self.config.rules.clone()),
            voter_sets: raft
                .map(|raft| raft.ring_view.voter_sets.clone())
                .unwrap_or_default(),
            voter_set_health: raft
                .and_then(|raft| raft.quorum.as_ref())
                .map(|quorum| quorum.sets.clone())
                .unwrap_or_default(),
            regions: raft.map(|raft| raft.regions.clone()).unwrap_or_default(),
            explanation: raft.and_then(|raft| raft.explanation.clone()),
            members: raft.map(members).unwrap_or_default(),
            peers: raft.map(|raft| peers(raft, own.id)).unwrap_or_default(),
            fault: self
                .fault
                .or_else(|| raft?.fault.as_ref().map(ToString::to_string)),
            activity: ActivityView {
                proposals_bytes: raft.map_or(0, |raft| raft.proposals_bytes),
                ..self.activity
            },
            log: self.log,
            quorum,
            archive: self.archive,
            hooks: self.hooks,
            pause: raft
                .and_then(|raft| raft.pause.clone())
                .map(|paused| PauseView::new(paused, self.now)),
            timers: raft.map(|raft| raft.timers.into()),
            formats: Some(FormatsView {
                speaks: self.config.program.formats,
                ring: raft.map(|raft| raft.formats.ring),
                // A leader takes no entries from others.
                refused: raft
                    .filter(|raft| raft.leadership.leading_term().is_none())
                    .and_then(|raft| raft.formats.refused.clone()),
                others: raft.map(others_programs).unwrap_or_default(),
            }),
            scheduled_switchover: raft.and_then(|raft| ScheduledSwitchover::of(&raft.ring_view)),
            replication_routes: self.routes.map(|routes| match raft.map(role) {
                Some(Role::Leader) => routes,
                // Left over from an earlier term.
                _ => ReplicationRoutesView {
                    routes: Vec::new(),
                    ..routes
                },
            }),
            mysql: self.mysql,
            consumers: self.consumers,
        }
    }

    fn quorum(&self) -> QuorumView {
        let lost = |cause: String, fix: String| QuorumView {
            ok: false,
            lost_for_seconds: self.quorum_lost_for.map(|lost| lost.as_secs_f64()),
            cause: Some(cause),
            fix: Some(fix),
        };
        let Some(raft) = &self.raft else {
            return lost(
                "the ring is not bootstrapped, or this member has not joined it".into(),
                "start every member, and run `witness bootstrap` beside one if there is no ring yet".into(),
            );
        };
        if has_quorum(raft) {
            return QuorumView {
                ok: true,
                lost_for_seconds: None,
                cause: None,
                fix: None,
            };
        }
        match (&raft.quorum_cause, &raft.quorum) {
            (Some(cause), Some(health)) => {
                let silent = health.sets.iter().filter(|set| !set.is_met());
                let silent = silent.flat_map(|set| set.silent.iter().copied());
                lost(cause.clone(), start_members(&self.config.members, silent))
            }
            _ => {
                let others = self.config.members.iter().map(|member| member.id);
                let others = others.filter(|id| *id != self.config.own.id);
                lost(
                    "no leader is known".into(),
                    start_members(&self.config.members, others),
                )
            }
        }
    }
}

/// Whether commits can proceed, as far as the member knows.
pub(crate) fn has_quorum(raft: &MemberStatus) -> bool {
    match (&raft.quorum, &raft.leadership) {
        (Some(health), _) => health.ok,
        (None, Leadership::Follower { leader }) => leader.is_some(),
        (None, _) => false,
    }
}

/// The command that restores a quorum.
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
    match raft.leadership {
        Leadership::Candidate => Role::Candidate,
        Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => Role::Leader,
        Leadership::Follower { .. } => {
            let own = raft.ring_view.member(raft.member);
            match own {
                Some(peer) if peer.voter => Role::Follower,
                _ => Role::Learner,
            }
        }
    }
}

fn leader(raft: &MemberStatus) -> Option<MemberId> {
    match raft.leadership {
        Leadership::Follower { leader } => leader,
        Leadership::Candidate => None,
        Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => Some(raft.member),
    }
}

/// A leading witness does not serve by design, and reports what it waits for.
fn not_serving(raft: &MemberStatus) -> Option<String> {
    raft.not_serving
        .clone()
        .or_else(|| match &raft.leader_task {
            Some(ring_admin::LeaderTask::Waiting { why }) => Some(why.clone()),
            Some(ring_admin::LeaderTask::Transferring { to }) => {
                Some(format!("it is transferring the leadership to member {to}"))
            }
            Some(ring_admin::LeaderTask::MovingQuorum {
                target: Some(target),
                ..
            }) => Some(format!(
                "it is moving the quorum, so that member {target} can lead"
            )),
            Some(ring_admin::LeaderTask::MovingQuorum { target: None, .. }) | None => None,
        })
}

fn members(raft: &MemberStatus) -> Vec<LoggedMember> {
    let members = raft.ring_view.members.iter();
    let logged = |peer: &RingMember| LoggedMember {
        id: peer.id,
        voter: peer.voter,
        // `witness history` and `GET /history` return it.
        record: ring_admin::without_history(peer.record.clone()),
    };
    members.map(logged).collect()
}

fn others_programs(raft: &MemberStatus) -> Vec<ProgramView> {
    let others = raft.formats.others.iter();
    let told = others.map(|(id, program)| ProgramView {
        id: *id,
        version: program.version.clone(),
        speaks: program.formats,
    });
    told.collect()
}

fn peers(raft: &MemberStatus, own: MemberId) -> Vec<PeerView> {
    let peer_view = |peer: &RingMember| PeerView {
        id: peer.id,
        name: peer.record.name.clone(),
        region: peer.record.region.clone(),
        kind: peer.record.kind,
        address: peer.record.address.clone(),
        voter: peer.voter,
        matched: peer.matched,
        behind_entries: peer.lag,
        answered_seconds: peer.answered.map(|age| age.as_secs_f64()),
    };
    raft.ring_view
        .members
        .iter()
        .filter(|peer| peer.id != own)
        .map(peer_view)
        .collect()
}

/// How often the quorum is checked without other events.
const LOOK: Duration = Duration::from_millis(200);

/// A member's memory between two checks: since when the quorum is lost, how often the leader changed, and how often it was elected.
#[derive(Debug)]
pub(crate) struct Observer(Mutex<Memory>);

#[derive(Debug)]
struct Memory {
    quorum_lost: Option<Instant>,
    leader: Option<MemberId>,
    /// Since when no leader has been known.
    leaderless: Option<Instant>,
    last_leaderless: Option<Duration>,
    leading_term: u64,
    elections_won: u64,
    leader_changes: u64,
}

/// The memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) quorum_lost_for: Option<Duration>,
    /// How long no leader was known before the current or last one.
    pub(crate) last_leaderless: Option<Duration>,
    pub(crate) elections_won: u64,
    pub(crate) leader_changes: u64,
}

impl Observer {
    /// Before the first check there is no quorum.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Memory {
            quorum_lost: Some(Instant::now()),
            leader: None,
            leaderless: None,
            last_leaderless: None,
            leading_term: 0,
            elections_won: 0,
            leader_changes: 0,
        }))
    }

    /// Checks at each change of leadership and periodically, while polled.
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
            last_leaderless: memory.last_leaderless,
            elections_won: memory.elections_won,
            leader_changes: memory.leader_changes,
        }
    }

    fn note_quorum(&self, ok: bool) {
        let mut memory = self.lock();
        memory.quorum_lost = match (ok, memory.quorum_lost) {
            (true, _) => None,
            (false, Some(since)) => Some(since),
            (false, None) => Some(Instant::now()),
        };
    }

    fn note_leadership(&self, now: Leadership, own: MemberId) {
        let mut memory = self.lock();
        let leader = match now {
            Leadership::Follower { leader } => leader,
            Leadership::Candidate => None,
            Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => Some(own),
        };
        if let Some(term) = now.leading_term()
            && term.0 > memory.leading_term
        {
            memory.leading_term = term.0;
            memory.elections_won += 1;
        }
        match leader {
            None if memory.leader.is_some() => {
                memory.leaderless.get_or_insert_with(Instant::now);
            }
            // The first leader known since the start ends no time without a leader.
            None => {}
            Some(_) => {
                let since = memory.leaderless.take();
                if since.is_some() || leader != memory.leader {
                    memory.last_leaderless = since.map(|since| since.elapsed());
                }
            }
        }
        // A gap without a leader is common, and is no change by itself.
        if leader.is_some() && leader != memory.leader {
            if memory.leader.is_some() {
                memory.leader_changes += 1;
            }
            memory.leader = leader;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Each field is independent, so the state after a panic is valid.
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
        // The next leader is known in the same moment.
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
