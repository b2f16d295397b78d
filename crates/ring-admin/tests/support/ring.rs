//! A ring of members in one process, with logs in memory and a switchboard as the network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consensus::log_probe::LogProbe;
use consensus::quorum::{QuorumPolicy, RingRules};
use consensus::{
    Answer, AppliedFloor, Bounds, CallError, Knock, Leadership, MemberCalls, MemberConfig, Outcome,
    Program, Question, Recollection, StartError, Term, Timers,
};
use futures::future::BoxFuture;
use raft_types::{
    AppEntry, FormatRange, Incarnation, MemberId, MemberKind, MemberRecord, Membership, OpId,
    OwnLog, Region, RingId, StoredMembership, TransactionPayload,
};
use ring_admin::{Member, Rejoin, Returning};

use super::memory_log::MemoryDisk;
use super::switchboard::Switchboard;

/// Timers that are short enough for tests, and long enough for a loaded machine.
pub(crate) const TIMERS: Timers = Timers {
    heartbeat: Duration::from_millis(100),
    lease: Duration::from_millis(500),
};

/// Time limit of each wait, longer than any operation needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A ring; members are numbered from 1.
pub(crate) struct Ring {
    pub(crate) id: RingId,
    pub(crate) board: Switchboard,
    pub(crate) records: BTreeMap<MemberId, MemberRecord>,
    pub(crate) disks: BTreeMap<MemberId, MemoryDisk>,
    pub(crate) members: BTreeMap<MemberId, Member>,
    pub(crate) bounds: Bounds,
    pub(crate) rules: RingRules,
    pub(crate) timers: Timers,
    /// True if a leader's clients answer the engine's search locally, as in a real ring.
    pub(crate) searches_locally: bool,
    /// For members with logs that were prepared by the test: the end of the applied entries.
    pub(crate) floors: BTreeMap<MemberId, AppliedFloor>,
    /// The formats of members that run another version.
    pub(crate) speaks: BTreeMap<MemberId, FormatRange>,
    /// The member with tasks that panic when they call another member.
    pub(crate) calls_panic: Option<MemberId>,
}

impl Ring {
    /// Starts members of these kinds, without a bootstrap.
    pub(crate) async fn started(kinds: &[MemberKind]) -> Self {
        Self::started_with(kinds, Bounds::default()).await
    }

    pub(crate) async fn started_with(kinds: &[MemberKind], bounds: Bounds) -> Self {
        let numbered = (1..).map(MemberId).zip(kinds);
        let records = numbered.map(|(id, &kind)| (id, record(id, "home", kind)));
        let mut ring = Self::with_records(records.collect(), bounds, RingRules::default());
        ring.start_all().await;
        ring
    }

    /// Starts a ring in several regions, which its first member bootstraps. The text has the form of [`Self::laid_out`].
    pub(crate) async fn over(regions: &str, policy: QuorumPolicy) -> Self {
        let mut ring = Self::laid_out(regions, policy);
        ring.start_all().await;
        ring.bootstrap().await;
        ring
    }

    /// Prepares members in regions with empty disks, and does not start them. The text has the form `a: 1d 2w 3w | b: 4d 5w 6n`: `d` is a
    /// database member, `w` a witness, `n` a witness without a vote.
    pub(crate) fn laid_out(regions: &str, policy: QuorumPolicy) -> Self {
        let mut records = BTreeMap::new();
        for region in regions.split('|') {
            let (name, members) = region.split_once(':').expect("a region has a name");
            for member in members.split_whitespace() {
                let (id, kind) = member.split_at(member.len() - 1);
                let id = MemberId(id.parse().expect("a member has a number"));
                let database = kind == "d";
                let kind_of = match database {
                    true => MemberKind::Database,
                    false => MemberKind::Witness,
                };
                let record = MemberRecord {
                    votes: kind != "n",
                    ..record(id, name.trim(), kind_of)
                };
                records.insert(id, record);
            }
        }
        let rules = RingRules {
            policy,
            ..RingRules::default()
        };
        Self::with_records(records, Bounds::default(), rules)
    }

    fn with_records(
        records: BTreeMap<MemberId, MemberRecord>,
        bounds: Bounds,
        rules: RingRules,
    ) -> Self {
        Self {
            id: RingId::random(),
            board: Switchboard::default(),
            disks: records
                .keys()
                .map(|id| (*id, MemoryDisk::default()))
                .collect(),
            records,
            members: BTreeMap::new(),
            bounds,
            rules,
            timers: TIMERS,
            searches_locally: true,
            floors: BTreeMap::new(),
            speaks: BTreeMap::new(),
            calls_panic: None,
        }
    }

    /// Starts every member.
    pub(crate) async fn start_all(&mut self) {
        for id in self.ids() {
            self.start(id).await;
        }
    }

    /// Starts a ring of members of these kinds, which its first member bootstraps.
    pub(crate) async fn of(kinds: &[MemberKind]) -> Self {
        let ring = Self::started(kinds).await;
        ring.bootstrap().await;
        ring
    }

    pub(crate) async fn bootstrap(&self) {
        let first = &self.members[&MemberId(1)];
        first.bootstrap(self.records.clone()).await.unwrap();
    }

    pub(crate) fn ids(&self) -> Vec<MemberId> {
        self.records.keys().copied().collect()
    }

    pub(crate) fn member(&self, id: MemberId) -> &Member {
        &self.members[&id]
    }

    /// Starts a member on its disk.
    pub(crate) async fn start(&mut self, id: MemberId) {
        self.try_start(id).await.unwrap();
    }

    /// Starts a member on its disk as the program does: the member first asks the others about its log.
    pub(crate) async fn come_back(&mut self, id: MemberId) {
        let disk = self.disks[&id].clone();
        let membership =
            Membership::new(vec![self.ids().into_iter().collect()], self.records.clone());
        let membership = StoredMembership::new(None, membership.unwrap());
        let own = Recollection::new(disk.report().runs, None);
        let calls = Arc::new(self.board.port(id));
        let mut returning = Returning::new(id, own, &membership, calls);
        assert_eq!(
            returning.before_the_start(&disk).await.unwrap(),
            Rejoin::AsItIs
        );
        self.start(id).await;
        let member = self.member(id).clone();
        tokio::spawn(returning.campaign_when_known(member));
    }

    /// Starts a member on its disk; returns the error if the member does not start.
    pub(crate) async fn try_start(&mut self, id: MemberId) -> Result<(), StartError> {
        let this = Program::this();
        let program = Program {
            formats: self.speaks.get(&id).copied().unwrap_or(this.formats),
            ..this
        };
        let config = MemberConfig {
            timers: self.timers,
            bounds: self.bounds,
            rules: self.rules.clone(),
            program,
            ..MemberConfig::new(self.id, id, self.records[&id].kind)
        };
        let port = self.board.port(id);
        let disk = self.disks[&id].clone();
        let calls: Arc<dyn MemberCalls> = match self.calls_panic == Some(id) {
            true => Arc::new(Panics),
            false => Arc::new(port.clone()),
        };
        let (log, starts) = (disk.open(), Arc::new(disk.clone()));
        let purged = || {
            let (last_applied, membership) = disk.purged();
            AppliedFloor {
                last_applied,
                membership,
            }
        };
        let floor = self.floors.get(&id).cloned().unwrap_or_else(purged);
        let member = match self.searches_locally {
            true => {
                let network = LogProbe::new(port, Arc::new(disk.clone()), &config.timers);
                Member::start(config, log, network, calls, floor, starts).await
            }
            false => Member::start(config, log, port, calls, floor, starts).await,
        };
        let member = member?;
        self.board.connect(id, member.inbound(), disk);
        self.members.insert(id, member);
        Ok(())
    }

    /// Stops a member without notifying the other members.
    pub(crate) async fn crash(&mut self, id: MemberId) {
        self.board.disconnect(id);
        let member = self.members.remove(&id).unwrap();
        member.shutdown().await;
    }

    /// Ends a member's process, as SIGKILL does.
    pub(crate) async fn kill(&mut self, id: MemberId) {
        self.board.hang_up(id);
        let member = self.members.remove(&id).unwrap();
        member.shutdown().await;
    }

    /// Waits until a member serves as the leader, and returns this member and its term.
    pub(crate) async fn serving(&self) -> (MemberId, Term) {
        within("a serving leader", async {
            loop {
                let serving = self.members.iter().find_map(|(id, member)| {
                    Some((*id, member.leadership().borrow().serving_term()?))
                });
                if let Some(serving) = serving {
                    return serving;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Proposes a transaction to the serving leader, again and again until it is committed.
    pub(crate) async fn commit(&self, text: &str) -> OpId {
        within("a commit", async {
            loop {
                let (leader, term) = self.serving().await;
                let proposed = self.member(leader).propose(transaction(text), term).await;
                if let Outcome::Committed(op_id) = proposed.unwrap().outcome().await {
                    return op_id;
                }
            }
        })
        .await
    }

    /// Waits until every running member has recorded that `op_id` is committed.
    pub(crate) async fn committed_everywhere(&self, op_id: OpId) {
        for member in self.members.values() {
            let mut committed = member.committed();
            let reached = committed.wait_for(|at| at.is_some_and(|at| at.index >= op_id.index));
            within("the commit mark", reached).await.unwrap();
        }
    }
}

/// Calls to other members, each of which panics.
struct Panics;

impl MemberCalls for Panics {
    fn ask<'a>(
        &'a self,
        _: MemberId,
        _: &'a MemberRecord,
        _: Question,
        _: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        panic!("on purpose")
    }

    fn knock<'a>(&'a self, _: MemberId, _: &'a MemberRecord, _: Duration) -> BoxFuture<'a, Knock> {
        panic!("on purpose")
    }
}

/// Waits for a future, and panics if it does not end within [`PATIENCE`].
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {PATIENCE:?}"),
    }
}

/// Waits until a member's leadership has the wanted state, and returns it.
pub(crate) async fn leadership_is(
    member: &Member,
    wanted: impl FnMut(&Leadership) -> bool,
) -> Leadership {
    let mut leadership = member.leadership();
    let reached = within("the leadership", leadership.wait_for(wanted)).await;
    *reached.unwrap()
}

pub(crate) fn transaction(text: &str) -> AppEntry {
    AppEntry::Transaction(TransactionPayload::seal(Bytes::copy_from_slice(
        text.as_bytes(),
    )))
}

pub(crate) fn record(id: MemberId, region: &str, kind: MemberKind) -> MemberRecord {
    MemberRecord {
        name: format!("member-{id}"),
        region: Region(region.to_owned()),
        kind,
        votes: true,
        priority: MemberRecord::DEFAULT_PRIORITY,
        address: format!("in-process:{id}"),
        incarnation: Incarnation::random(),
        ..MemberRecord::default()
    }
}
