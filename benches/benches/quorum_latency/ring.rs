//! A ring in this process: real members, real logs with real fsyncs, and a network with delays.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use binlog_store::{BinlogStore, DiskFileSystem, SledMeta, StoreOptions};
use consensus::{AppliedFloor, MemberConfig, Outcome, Term, Timers};
use raft_types::{AppEntry, Incarnation, MemberId, MemberKind, MemberRecord, Region, RingId};
use ring_admin::Member;
use tempfile::TempDir;
use testkit::figures::target_folder;

use super::delay_timer::DelayTimer;
use super::distances::{Distances, MEMBERS_OF_A_REGION, region_number};
use super::network::Network;
use super::plain::{self, PlainRaft};
use super::receiver::Receiver;
use super::setup::{REGIONS, Setup};

/// Longer than the longest round trip.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// The first region's database member bootstraps the ring, leads it, and accepts the clients' commits.
const LEADER: MemberId = MemberId(1);
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The members of one setup in one process, and the network between them.
pub(crate) struct Ring {
    leader: Leader,
    others: Vec<Receiver>,
    members: Vec<Member>,
    network: Network,
    _folder: TempDir,
}

/// The member to which the clients send their requests.
#[derive(Clone)]
pub(crate) enum Leader {
    Member(Member, Term),
    Plain(PlainRaft),
}

impl Leader {
    /// Commits an entry.
    pub(crate) async fn commit(&self, entry: AppEntry) -> Result<()> {
        match self {
            Self::Plain(raft) => plain::commit(raft, entry).await,
            Self::Member(member, term) => {
                let mut ticket = member.propose(entry, *term).await?;
                match ticket.outcome().await {
                    Outcome::Committed(_) => Ok(()),
                    other => bail!("the leadership changed in the middle of the bench: {other:?}"),
                }
            }
        }
    }
}

impl Ring {
    pub(crate) async fn make(
        setup: Setup,
        distances: Distances,
        delay_timer: &DelayTimer,
    ) -> Result<Self> {
        let folder = tempfile::tempdir_in(target_folder())?;
        let network = Network::new(delay_timer.clone(), distances);
        let id = RingId::random();
        let timers = Timers::from_heartbeat(HEARTBEAT);
        let records: BTreeMap<_, _> = (1..=setup.regions() as u64 * MEMBERS_OF_A_REGION)
            .map(|number| (MemberId(number), record(MemberId(number))))
            .collect();
        let (mut members, mut plain) = (BTreeMap::new(), BTreeMap::new());
        for (&member, record) in &records {
            let log = open_log(folder.path(), id, member)?;
            let port = network.port(member);
            if setup == Setup::PlainOpenraft {
                let raft = plain::start(member, timers, log, port).await?;
                network.connect(member, Receiver::Plain(raft.clone()));
                plain.insert(member, raft);
                continue;
            }
            let config = MemberConfig {
                timers,
                rules: setup.rules(),
                ..MemberConfig::new(id, member, record.kind)
            };
            let calls = Arc::new(port.clone());
            let floor = AppliedFloor::default();
            let starts = Arc::new(log.handle());
            let started = Member::start(config, log, port, calls, floor, starts).await?;
            network.connect(member, Receiver::Member(started.inbound()));
            members.insert(member, started);
        }
        let leader = match (members.get(&LEADER), plain.get(&LEADER)) {
            (Some(member), _) => {
                member.bootstrap(records).await?;
                Leader::Member(member.clone(), serving(member).await?)
            }
            (None, Some(raft)) => {
                plain::found(raft, records, LEADER).await?;
                Leader::Plain(raft.clone())
            }
            (None, None) => bail!("a ring without members"),
        };
        Ok(Self {
            leader,
            others: plain.into_values().map(Receiver::Plain).collect(),
            members: members.into_values().collect(),
            network,
            _folder: folder,
        })
    }

    pub(crate) fn leader(&self) -> Leader {
        self.leader.clone()
    }

    /// Stops all members before the next ring starts.
    pub(crate) async fn end(self) -> Result<()> {
        self.network.close();
        for member in &self.members {
            member.shutdown().await;
        }
        for receiver in &self.others {
            if let Receiver::Plain(raft) = receiver {
                raft.shutdown().await.map_err(|error| anyhow!("{error}"))?;
            }
        }
        Ok(())
    }
}

fn open_log(folder: &Path, ring: RingId, member: MemberId) -> Result<BinlogStore> {
    let folder = folder.join(member.to_string());
    std::fs::create_dir_all(&folder)?;
    let meta = SledMeta::open(&folder.join("meta"))?;
    let options = StoreOptions::new(&folder, ring);
    let (log, _) = BinlogStore::open(options, Arc::new(DiskFileSystem), Arc::new(meta))?;
    Ok(log)
}

async fn serving(member: &Member) -> Result<Term> {
    let mut leadership = member.leadership();
    let serves = leadership.wait_for(|now| now.serving_term().is_some());
    let serves = tokio::time::timeout(READY_LIMIT, serves);
    let now = serves
        .await
        .context("the bootstrapping member does not lead")??;
    now.serving_term()
        .context("the bootstrapping member lost the leadership")
}

fn record(id: MemberId) -> MemberRecord {
    let region = region_number(id);
    let first_of_region = (id.0 - 1).is_multiple_of(MEMBERS_OF_A_REGION);
    MemberRecord {
        name: format!("member-{id}"),
        region: Region(REGIONS[region as usize].to_owned()),
        kind: if first_of_region {
            MemberKind::Database
        } else {
            MemberKind::Witness
        },
        votes: true,
        address: format!("in-process:{id}"),
        incarnation: Incarnation::random(),
        ..MemberRecord::default()
    }
}
