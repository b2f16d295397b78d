//! The basis of a leader's lease: when each member last answered a heartbeat, and for how long the member then elects no other leader. This
//! module observes the heartbeats that the engine sends ([`crate::engine::network`]), and whether entries are accepted.
//!
//! The engine's own clock for this is too generous. In a stream, the engine counts one answer for every request with the same last entry,
//! even for a request that was sent later. Consider a leader that was stopped for longer than its lease and then finds an old answer in its
//! queue. With the engine's clock, it would serve reads although another member may lead by then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::raft::{StreamAppendError, StreamAppendResult};
use raft_types::{Incarnation, MemberId, Term, TypeConfig, Vote, lock};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::warn;

use crate::lease::promise::PromisedLease;
use crate::log_probe::{Lane, RpcResult};

/// After this number of failures to send entries, heartbeats alone no longer count as answers.
const FAILURES: u32 = 2;

/// The contacts of one member with the others. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contacts {
    met: Arc<Mutex<BTreeMap<MemberId, Met>>>,
    /// While this is true, nothing is sent to followers; see [`super::leadership::is_quiet`].
    quiet: watch::Sender<bool>,
    /// Notified when unknown leases must be requested, for example after a member with an unknown lease has answered. Only one task may
    /// wait.
    pub(crate) unpromised: Arc<Notify>,
}

/// The data directory of a member, its last answer and its lease.
#[derive(Debug, Clone, Copy)]
struct Met {
    incarnation: Incarnation,
    contact: Option<Contact>,
    promised: Option<PromisedLease>,
    failed_entries: FailedEntries,
}

/// Failures to send entries to a member, since the last accepted entry or the last failed heartbeat.
#[derive(Debug, Clone, Copy, Default)]
struct FailedEntries {
    times: u32,
    /// The time when the number of failures reached [`FAILURES`].
    since: Option<Instant>,
    reported: bool,
}

/// The failures are reported after this time, because a member that stops still answers heartbeats for a short time.
const REPORTED_AFTER: Duration = Duration::from_secs(5);

impl FailedEntries {
    /// Returns true once, when the failures must be reported.
    fn is_to_be_reported(&mut self) -> bool {
        let lasts = self
            .since
            .is_some_and(|since| since.elapsed() >= REPORTED_AFTER);
        lasts && !std::mem::replace(&mut self.reported, true)
    }
}

/// The answer on which a leader's lease depends: the last answer that completes a majority of each voter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuorumContact {
    /// How long ago the answered heartbeat was sent.
    pub(crate) age: Duration,
    /// How long the answer counts: the shorter of the leader's lease and the voter's lease.
    pub(crate) lease: Duration,
}

/// An answered heartbeat: its term, and the time when it was sent.
type Contact = (Term, Instant);

impl Contacts {
    /// Stops or resumes all requests of this member as a leader. Returns whether they were stopped before.
    pub(crate) fn keep_quiet(&self, quiet: bool) -> bool {
        self.quiet.send_replace(quiet)
    }

    /// Waits until requests may be sent.
    pub(crate) async fn may_send(&self) {
        let mut quiet = self.quiet.subscribe();
        // The sender is in `self`, so this wait does not fail.
        drop(quiet.wait_for(|quiet| !quiet).await);
    }

    /// Records that the number `member` belongs to this data directory from now on. Answers of another directory under the same number no
    /// longer count.
    pub(crate) fn meet(&self, member: MemberId, incarnation: Incarnation) {
        let mut met = lock(&self.met);
        let of_member = met.entry(member).or_insert(Met::nothing_of(incarnation));
        if of_member.incarnation != incarnation {
            *of_member = Met::nothing_of(incarnation);
        }
    }

    /// Begins to observe a stream to the member with this data directory.
    pub(crate) fn stream(
        &self,
        lane: Lane,
        member: MemberId,
        incarnation: Incarnation,
    ) -> StreamContact {
        StreamContact {
            contacts: self.clone(),
            lane,
            member,
            incarnation,
            sent: Arc::default(),
        }
    }

    fn answered(&self, member: MemberId, incarnation: Incarnation, contact: Contact) {
        let mut met = lock(&self.met);
        let of_member = met.entry(member).or_insert(Met::nothing_of(incarnation));
        if of_member.incarnation == incarnation {
            of_member.contact = of_member.contact.max(Some(contact));
        }
        if of_member.failed_entries.is_to_be_reported() {
            warn!(
                "member {member} answers heartbeats, and entries do not reach it: it does not count for the leader's lease. Large \
                 packets may be lost on the way (MTU)"
            );
        }
        if of_member.lease_in(contact.0).is_none() {
            self.unpromised.notify_one();
        }
    }

    /// Records whether the member with this data directory accepted or refused entries.
    fn entries(&self, member: MemberId, incarnation: Incarnation, taken: bool) {
        let mut met = lock(&self.met);
        let of_member = met.get_mut(&member);
        let Some(of_member) = of_member.filter(|met| met.incarnation == incarnation) else {
            return;
        };
        let failed = &mut of_member.failed_entries;
        if taken {
            *failed = FailedEntries::default();
            return;
        }
        failed.times = failed.times.saturating_add(1);
        if failed.times == FAILURES {
            failed.since = Some(Instant::now());
        }
    }

    /// Records that a heartbeat did not reach the member. The age of its last answer shows that too, so failures of entries are reset.
    fn heartbeat_failed(&self, member: MemberId) {
        if let Some(of_member) = lock(&self.met).get_mut(&member) {
            of_member.failed_entries = FailedEntries::default();
        }
    }

    /// Records the lease that the member with this data directory has announced. Within a term, the shortest announced lease counts,
    /// because an announcement of the member's previous process may arrive late.
    pub(crate) fn promised(
        &self,
        member: MemberId,
        incarnation: Incarnation,
        promised: PromisedLease,
    ) {
        let mut met = lock(&self.met);
        let of_member = met.entry(member).or_insert(Met::nothing_of(incarnation));
        if of_member.incarnation != incarnation {
            *of_member = Met::nothing_of(incarnation);
        }
        let known = of_member
            .promised
            .filter(|known| known.term >= promised.term);
        of_member.promised = Some(match known {
            Some(known) if known.term > promised.term => known,
            Some(known) => PromisedLease {
                lease: known.lease.min(promised.lease),
                ..known
            },
            None => promised,
        });
    }

    /// Returns true if the lease of this member in this term is unknown.
    pub(crate) fn lacks_promise(&self, member: MemberId, term: Term) -> bool {
        let met = lock(&self.met);
        met.get(&member)
            .is_none_or(|met| met.lease_in(term).is_none())
    }

    /// Returns the answer on which the lease of the leader of `term` depends. A majority of each set must have answered a heartbeat of that
    /// term, and announced its lease. The leader, `own`, counts as present.
    pub(crate) fn quorum(
        &self,
        own: MemberId,
        term: Term,
        sets: &[BTreeSet<MemberId>],
        own_lease: Duration,
    ) -> Option<QuorumContact> {
        let met = lock(&self.met);
        let now = Instant::now();
        let contact_of = |id: &MemberId| {
            if *id == own {
                return Some((Duration::ZERO, own_lease));
            }
            let met = met.get(id)?;
            let (_, sent) = met.contact.filter(|(of, _)| *of == term)?;
            let age = (now - sent).max(met.without_entries(own_lease));
            Some((age, met.lease_in(term)?.min(own_lease)))
        };
        // The contact with the smallest value of age + longest lease - lease ends last.
        let spent = |(age, lease): &(Duration, Duration)| *age + (own_lease - *lease);
        let of_set = |set: &BTreeSet<MemberId>| {
            let mut contacts: Vec<_> = set.iter().filter_map(contact_of).collect();
            contacts.sort_unstable_by_key(spent);
            contacts.get(set.len() / 2).copied()
        };
        let contacts: Option<Vec<_>> = sets.iter().map(of_set).collect();
        let (age, lease) = contacts?.into_iter().max_by_key(spent)?;
        Some(QuorumContact { age, lease })
    }
}

impl Met {
    fn nothing_of(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            contact: None,
            promised: None,
            failed_entries: FailedEntries::default(),
        }
    }

    /// Returns for how long the member's answers have not counted, because heartbeats reach it and entries do not. A single failure may be
    /// a failure of the connection: to resend a large transaction takes time.
    fn without_entries(&self, own_lease: Duration) -> Duration {
        let since = self.failed_entries.since;
        since.map_or(Duration::ZERO, |since| {
            since.elapsed().saturating_sub(own_lease * 3)
        })
    }

    fn lease_in(&self, term: Term) -> Option<Duration> {
        let promised = self.promised.filter(|promised| promised.term == term)?;
        Some(promised.lease)
    }
}

/// One stream of requests to a member. Clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct StreamContact {
    contacts: Contacts,
    lane: Lane,
    member: MemberId,
    incarnation: Incarnation,
    /// The first request and its time. A stream of heartbeats has one request; with more requests, the time of the first one is the safe
    /// choice.
    sent: Arc<Mutex<Option<(Vote, Instant)>>>,
}

impl StreamContact {
    /// Records that a request of the leader with this vote is sent now.
    pub(crate) fn sends(&self, vote: &Vote) {
        if self.lane == Lane::Heartbeats {
            lock(&self.sent).get_or_insert((*vote, Instant::now()));
        }
    }

    /// Records that the stream, or its next request, has failed.
    pub(crate) fn fails(&self) {
        match self.lane {
            Lane::Entries => self.contacts.entries(self.member, self.incarnation, false),
            Lane::Heartbeats => self.contacts.heartbeat_failed(self.member),
            Lane::Starts => {}
        }
    }

    /// Records the answer to the next request of the stream.
    pub(crate) fn answered(&self, answer: &RpcResult<StreamAppendResult<TypeConfig>>) {
        let (member, incarnation) = (self.member, self.incarnation);
        let Ok(result) = answer else {
            return self.fails();
        };
        match self.lane {
            Lane::Entries => self.contacts.entries(member, incarnation, true),
            Lane::Heartbeats => {
                let follows = matches!(result, Ok(_) | Err(StreamAppendError::Conflict(_)));
                let sent = *lock(&self.sent);
                if let (true, Some((vote, sent))) = (follows, sent) {
                    let contact = (Term(vote.leader_id.term), sent);
                    self.contacts.answered(member, incarnation, contact);
                }
            }
            Lane::Starts => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MemberId = MemberId(1);
    const TERM: Term = Term(7);

    async fn ask(contacts: &Contacts, target: MemberId, takes: Duration, heartbeat: bool) {
        ask_often(contacts, target, takes, heartbeat, 1).await;
    }

    async fn ask_often(
        contacts: &Contacts,
        target: MemberId,
        takes: Duration,
        heartbeat: bool,
        times: usize,
    ) {
        let lane = match heartbeat {
            true => Lane::Heartbeats,
            false => Lane::Entries,
        };
        let stream = contacts.stream(lane, target, Incarnation::default());
        for _ in 0..times {
            contacts.may_send().await;
            stream.sends(&Vote::new_committed(TERM.0, OWN));
            tokio::time::sleep(takes).await;
        }
        stream.answered(&Ok(Ok(None)));
    }

    const LEASE: Duration = Duration::from_secs(60);

    fn age_of(contacts: &Contacts, term: Term, sets: &[BTreeSet<MemberId>]) -> Option<Duration> {
        let quorum = contacts.quorum(OWN, term, sets, LEASE);
        quorum.map(|quorum| quorum.age)
    }

    fn promise(contacts: &Contacts, member: u64, term: Term, lease: Duration) {
        let promised = PromisedLease { term, lease };
        contacts.promised(MemberId(member), Incarnation::default(), promised);
    }

    fn sets(of: &[&[u64]]) -> Vec<BTreeSet<MemberId>> {
        let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
        of.iter().map(set).collect()
    }

    #[tokio::test]
    async fn a_contact_is_as_old_as_the_heartbeat_and_entries_are_none() {
        let contacts = Contacts::default();
        let ring = sets(&[&[1, 2, 3]]);
        ask(&contacts, MemberId(2), Duration::ZERO, false).await;
        assert_eq!(age_of(&contacts, TERM, &ring), None);

        let takes = Duration::from_millis(50);
        promise(&contacts, 2, TERM, LEASE);
        ask(&contacts, MemberId(2), takes, true).await;
        let age = age_of(&contacts, TERM, &ring);
        assert!(age.is_some_and(|age| age >= takes), "{age:?}");
        // Another leadership begins without contacts.
        assert_eq!(age_of(&contacts, Term(8), &ring), None);
    }

    /// The answer to an early request may arrive after a later request was sent.
    #[tokio::test]
    async fn the_time_of_the_first_of_several_requests_counts() {
        let contacts = Contacts::default();
        let takes = Duration::from_millis(50);
        promise(&contacts, 2, TERM, LEASE);
        ask_often(&contacts, MemberId(2), takes, true, 2).await;
        let age = age_of(&contacts, TERM, &sets(&[&[1, 2, 3]]));
        assert!(age.is_some_and(|age| age >= 2 * takes), "{age:?}");
    }

    /// Regression: a path that drops large packets still carries heartbeats. A leader that counted them blocked the election of another
    /// leader.
    #[tokio::test(start_paused = true)]
    async fn heartbeats_without_answers_stop_counting() {
        let contacts = Contacts::default();
        let (ring, own) = (sets(&[&[1, 2]]), Incarnation::default());
        promise(&contacts, 2, TERM, LEASE);
        let age = async || {
            ask(&contacts, MemberId(2), Duration::ZERO, true).await;
            age_of(&contacts, TERM, &ring).expect("a contact")
        };
        let fails = || contacts.entries(MemberId(2), own, false);
        fails();
        tokio::time::sleep(LEASE * 5).await;
        assert_eq!(age().await, Duration::ZERO, "entries may be under way");
        fails();
        tokio::time::sleep(LEASE * 3).await;
        assert_eq!(age().await, Duration::ZERO);
        tokio::time::sleep(LEASE).await;
        assert_eq!(age().await, LEASE);
        // The member has accepted an entry.
        ask(&contacts, MemberId(2), Duration::ZERO, false).await;
        assert_eq!(age().await, Duration::ZERO);
        for _ in 0..2 {
            fails();
            contacts.heartbeat_failed(MemberId(2));
        }
        tokio::time::sleep(LEASE * 5).await;
        assert_eq!(age().await, Duration::ZERO, "it was not reached at all");
    }

    #[tokio::test]
    async fn answers_of_another_data_directory_do_not_count() {
        let contacts = Contacts::default();
        let ring = sets(&[&[1, 2]]);
        promise(&contacts, 2, TERM, LEASE);
        ask(&contacts, MemberId(2), Duration::ZERO, true).await;
        contacts.meet(MemberId(2), Incarnation::default());
        assert!(age_of(&contacts, TERM, &ring).is_some());
        contacts.meet(MemberId(2), Incarnation::random());
        assert_eq!(age_of(&contacts, TERM, &ring), None);
        // A late answer of the previous data directory still counts only for that directory.
        ask(&contacts, MemberId(2), Duration::ZERO, true).await;
        assert_eq!(age_of(&contacts, TERM, &ring), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_leader_sends_nothing_until_it_may() {
        let contacts = Contacts::default();
        promise(&contacts, 2, TERM, LEASE);
        for heartbeat in [true, false] {
            contacts.keep_quiet(true);
            let began = Instant::now();
            let asked = ask(&contacts, MemberId(2), Duration::ZERO, heartbeat);
            let quiet = async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                contacts.keep_quiet(false);
            };
            tokio::join!(asked, quiet);
            assert!(began.elapsed() >= Duration::from_secs(2));
        }
        let age = age_of(&contacts, TERM, &sets(&[&[1, 2]]));
        assert!(
            age.is_some_and(|age| age < Duration::from_secs(3)),
            "{age:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_the_shorter_lease_and_not_before_the_voter_has_announced_its_own()
    {
        let seconds = Duration::from_secs;
        let contacts = Contacts::default();
        let ring = sets(&[&[1, 2, 3]]);
        let quorum = || contacts.quorum(OWN, TERM, &ring, seconds(10));
        for member in [2, 3] {
            ask(&contacts, MemberId(member), Duration::ZERO, true).await;
        }
        assert_eq!(quorum(), None);
        promise(&contacts, 2, Term(6), seconds(4));
        assert_eq!(quorum(), None, "it may have another one in this term");
        promise(&contacts, 2, TERM, seconds(4));
        let of = |age, lease| {
            Some(QuorumContact {
                age: seconds(age),
                lease: seconds(lease),
            })
        };
        assert_eq!(quorum(), of(0, 4));
        // With the leader, one voter is enough. So the voter whose promise ends last counts.
        promise(&contacts, 3, TERM, seconds(20));
        assert_eq!(quorum(), of(0, 10));
        tokio::time::advance(seconds(7)).await;
        ask(&contacts, MemberId(2), Duration::ZERO, true).await;
        assert_eq!(quorum(), of(0, 4));
        // A longer lease that arrives late belongs to the member's previous process.
        promise(&contacts, 2, TERM, seconds(20));
        assert_eq!(quorum(), of(0, 4));
    }

    #[tokio::test]
    async fn every_set_has_to_have_its_majority() {
        let contacts = Contacts::default();
        let both = sets(&[&[1, 2, 3], &[4, 5, 6]]);
        for member in 2..=6 {
            promise(&contacts, member, TERM, LEASE);
        }
        for member in [2, 4] {
            ask(&contacts, MemberId(member), Duration::ZERO, true).await;
        }
        assert_eq!(age_of(&contacts, TERM, &both), None);
        ask(&contacts, MemberId(5), Duration::ZERO, true).await;
        assert!(age_of(&contacts, TERM, &both).is_some());
        // The leader itself is in no set.
        let theirs = sets(&[&[4, 5, 6]]);
        assert!(age_of(&contacts, TERM, &theirs).is_some());
    }
}
