//! When each member last answered a heartbeat: what the lease of a leader rests on. Put in front of the network, it sees
//! the heartbeats and nothing else.
//!
//! The engine has such a clock, and it is too generous: it takes the answer to a request of its stream of entries as one to
//! every request that names the same last entry, also to one that was sent a moment ago. A leader that was stopped for longer than
//! its lease, and finds an old answer waiting, would serve reads although another leads by then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{
    NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{Incarnation, MemberId, MemberRecord, TypeConfig, Vote};
use tokio::time::Instant;

use crate::lease::leadership::Term;
use crate::log_probe::RpcResult;

/// One member's contacts; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contacts(Arc<Mutex<BTreeMap<MemberId, Met>>>);

/// Who is behind a number, and what it answered.
type Met = (Incarnation, Option<Contact>);

/// A heartbeat that was answered: in which term, and when it was sent.
#[derive(Debug, Clone, Copy)]
struct Contact {
    term: Term,
    sent: Instant,
}

impl Contacts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Met>> {
        // Every change is one insertion.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Behind this number is this data directory from now on. What another one answered there, or still answers, does not
    /// count for it.
    fn meet(&self, member: MemberId, incarnation: Incarnation) {
        let mut contacts = self.lock();
        let met = contacts.entry(member).or_insert((incarnation, None));
        if met.0 != incarnation {
            *met = (incarnation, None);
        }
    }

    fn answered(&self, member: MemberId, incarnation: Incarnation, contact: Contact) {
        let mut contacts = self.lock();
        let (behind, known) = contacts.entry(member).or_insert((incarnation, None));
        let later = |known: Contact| (known.term, known.sent) < (contact.term, contact.sent);
        if *behind == incarnation && known.is_none_or(later) {
            *known = Some(contact);
        }
    }

    /// How long ago the last heartbeat of `term` was sent that a majority of each set has answered; the leader, `own`,
    /// counts as present.
    pub(crate) fn quorum_age(
        &self,
        own: MemberId,
        term: Term,
        sets: &[BTreeSet<MemberId>],
    ) -> Option<Duration> {
        let contacts = self.lock();
        let now = Instant::now();
        let age = |id: &MemberId| match contacts.get(id) {
            _ if *id == own => Some(Duration::ZERO),
            Some((_, Some(contact))) if contact.term == term => Some(now - contact.sent),
            _ => None,
        };
        let of_set = |set: &BTreeSet<MemberId>| {
            let mut ages: Vec<Duration> = set.iter().filter_map(age).collect();
            ages.sort_unstable();
            ages.get(set.len() / 2).copied()
        };
        let ages: Option<Vec<Duration>> = sets.iter().map(of_set).collect();
        ages?.into_iter().max()
    }
}

/// A factory whose heartbeats are noted.
pub(crate) struct LeaseNetwork<F> {
    inner: F,
    contacts: Contacts,
}

impl<F> LeaseNetwork<F> {
    pub(crate) fn new(inner: F, contacts: Contacts) -> Self {
        Self { inner, contacts }
    }
}

impl<F: RaftNetworkFactory<TypeConfig>> RaftNetworkFactory<TypeConfig> for LeaseNetwork<F> {
    type Network = LeaseClient<F::Network>;

    async fn new_client(&mut self, target: MemberId, record: &MemberRecord) -> Self::Network {
        LeaseClient {
            inner: self.inner.new_client(target, record).await,
            heartbeats_to: None,
        }
    }

    async fn new_heartbeat_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        let incarnation = record.incarnation;
        self.contacts.meet(target, incarnation);
        LeaseClient {
            inner: self.inner.new_heartbeat_client(target, record).await,
            heartbeats_to: Some((target, incarnation, self.contacts.clone())),
        }
    }

    async fn new_snapshot_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        LeaseClient {
            inner: self.inner.new_snapshot_client(target, record).await,
            heartbeats_to: None,
        }
    }
}

/// A client of [`LeaseNetwork`].
pub(crate) struct LeaseClient<N> {
    inner: N,
    heartbeats_to: Option<(MemberId, Incarnation, Contacts)>,
}

impl<N: NetStreamAppend<TypeConfig>> NetStreamAppend<TypeConfig> for LeaseClient<N> {
    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let Some((target, incarnation, contacts)) = self.heartbeats_to.clone() else {
            return self.inner.stream_append(requests, option);
        };
        // A stream of heartbeats has one request; should it ever have more, the first one's time is the safe one.
        let sent: Arc<Mutex<Option<(Vote, Instant)>>> = Arc::default();
        let noting = sent.clone();
        let requests = requests.map(move |request| {
            let mut sent = noting.lock().unwrap_or_else(PoisonError::into_inner);
            sent.get_or_insert((request.vote, Instant::now()));
            request
        });
        async move {
            let answers = self.inner.stream_append(requests, option).await?;
            let noted = answers.inspect(move |answer| {
                let sent = *sent.lock().unwrap_or_else(PoisonError::into_inner);
                if let (true, Some((vote, sent))) = (follows(answer), sent) {
                    let term = Term(vote.leader_id.term);
                    contacts.answered(target, incarnation, Contact { term, sent });
                }
            });
            Ok(noted.boxed())
        }
        .boxed()
    }
}

/// Whether who answers so follows the leader that asked.
fn follows(answer: &RpcResult<StreamAppendResult<TypeConfig>>) -> bool {
    matches!(answer, Ok(Ok(_) | Err(StreamAppendError::Conflict(_))))
}

crate::passes_on_votes!([N: NetVote<TypeConfig> + NetTransferLeader<TypeConfig> + NetBackoff<TypeConfig>] LeaseClient<N>);

impl<N: NetSnapshot<TypeConfig>> NetSnapshot<TypeConfig> for LeaseClient<N> {
    type SnapshotData = N::SnapshotData;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, Self::SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        self.inner
            .full_snapshot(vote, snapshot, cancel, option)
            .await
    }
}

// When this member last heard from who leads. The engine goes on naming a leader that has long been silent.

/// The moment of the last call of a leader that was listened to.
#[derive(Debug, Clone)]
pub(crate) struct LastHeard {
    begun: Instant,
    /// Milliseconds since `begun`, plus one; 0 for never.
    at: Arc<AtomicU64>,
}

impl LastHeard {
    pub(crate) fn never() -> Self {
        Self {
            begun: Instant::now(),
            at: Arc::default(),
        }
    }

    /// It was heard just now.
    pub(crate) fn now(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.at.store(millis + 1, Ordering::Relaxed);
    }

    /// How long ago it was heard last.
    pub(crate) fn age(&self) -> Option<Duration> {
        let millis = self.at.load(Ordering::Relaxed).checked_sub(1)?;
        let at = Duration::from_millis(millis);
        Some(self.begun.elapsed().saturating_sub(at))
    }

    /// Whether it was heard less than this long ago.
    pub(crate) fn within(&self, age: Duration) -> bool {
        self.age().is_some_and(|heard| heard < age)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    const OWN: MemberId = MemberId(1);
    const TERM: Term = Term(7);

    /// Follows whoever asks, a while after each request.
    struct Follower(Duration);

    impl NetStreamAppend<TypeConfig> for Follower {
        fn stream_append<'s, S>(
            &'s mut self,
            mut requests: S,
            _: RPCOption,
        ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
        where
            S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
        {
            async move {
                while requests.next().await.is_some() {
                    tokio::time::sleep(self.0).await;
                }
                Ok(stream::iter([Ok(Ok(None))]).boxed())
            }
            .boxed()
        }
    }

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
        let mut client = LeaseClient {
            inner: Follower(takes),
            heartbeats_to: heartbeat.then(|| (target, Incarnation::default(), contacts.clone())),
        };
        let request = AppendEntriesRequest {
            vote: Vote::new_committed(TERM.0, OWN),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let requests = stream::iter(vec![request; times]);
        let option = RPCOption::new(Duration::from_secs(1));
        let answers = client.stream_append(requests, option).await;
        let answers: Vec<_> = answers.expect("the follower answers").collect().await;
        assert_eq!(answers.len(), 1);
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
        assert_eq!(contacts.quorum_age(OWN, TERM, &ring), None);

        let takes = Duration::from_millis(50);
        ask(&contacts, MemberId(2), takes, true).await;
        let age = contacts.quorum_age(OWN, TERM, &ring);
        assert!(age.is_some_and(|age| age >= takes), "{age:?}");
        // Another leadership begins without contacts.
        assert_eq!(contacts.quorum_age(OWN, Term(8), &ring), None);
    }

    /// An answer to an early request may come when a later one was sent already.
    #[tokio::test]
    async fn of_several_requests_the_first_ones_time_counts() {
        let contacts = Contacts::default();
        let takes = Duration::from_millis(50);
        ask_often(&contacts, MemberId(2), takes, true, 2).await;
        let age = contacts.quorum_age(OWN, TERM, &sets(&[&[1, 2, 3]]));
        assert!(age.is_some_and(|age| age >= 2 * takes), "{age:?}");
    }

    #[tokio::test]
    async fn what_another_data_directory_answered_does_not_count() {
        let contacts = Contacts::default();
        let ring = sets(&[&[1, 2]]);
        ask(&contacts, MemberId(2), Duration::ZERO, true).await;
        contacts.meet(MemberId(2), Incarnation::default());
        assert!(contacts.quorum_age(OWN, TERM, &ring).is_some());
        contacts.meet(MemberId(2), Incarnation::random());
        assert_eq!(contacts.quorum_age(OWN, TERM, &ring), None);
        // An answer that comes late is the other one's still.
        ask(&contacts, MemberId(2), Duration::ZERO, true).await;
        assert_eq!(contacts.quorum_age(OWN, TERM, &ring), None);
    }

    #[tokio::test]
    async fn every_set_has_to_have_its_majority() {
        let contacts = Contacts::default();
        let both = sets(&[&[1, 2, 3], &[4, 5, 6]]);
        for member in [2, 4] {
            ask(&contacts, MemberId(member), Duration::ZERO, true).await;
        }
        assert_eq!(contacts.quorum_age(OWN, TERM, &both), None);
        ask(&contacts, MemberId(5), Duration::ZERO, true).await;
        assert!(contacts.quorum_age(OWN, TERM, &both).is_some());
        // A leader that is in no set itself.
        let theirs = sets(&[&[4, 5, 6]]);
        assert!(contacts.quorum_age(OWN, TERM, &theirs).is_some());
    }
}

#[cfg(test)]
mod last_heard_tests {
    use super::*;

    #[test]
    fn silence_is_noticed() {
        let heard = LastHeard::never();
        assert!(!heard.within(Duration::from_secs(60)));
        heard.now();
        assert!(heard.within(Duration::from_secs(60)));
        assert!(!heard.within(Duration::ZERO));
    }
}
