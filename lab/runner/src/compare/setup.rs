//! The compared setups, by the acknowledgement that a commit waits for.
//!
//! All setups have the same primary: one mysqld with the same data and settings and the semi-sync plugin. Only the acknowledging processes
//! differ. Only one setup runs at a time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use testkit::cluster::{Cluster, ClusterOptions, MemberDatabase, MemberOptions};
use testkit::mysqld::Mysqld;
use testkit::mysqld::group_replication::Group;

use super::servers::Template;

/// The heartbeat interval, which is the default of the configuration.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Time limit for applying replicas to catch up at the end of a step. The next step starts afterwards.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(300);
const ACKNOWLEDGER_LIMIT: Duration = Duration::from_secs(60);

/// One of the compared setups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Setup {
    /// No acknowledgement.
    StockAsync,
    /// Two stock semi-sync replicas, which apply.
    SemiSync,
    /// Two stock semi-sync replicas whose applier threads are stopped.
    LeanSemiSync,
    /// As `LeanSemiSync`, but the replicas sync their relay log before they acknowledge.
    SyncedSemiSync,
    /// Group Replication with three servers.
    GroupReplication,
    /// This ring: one database member, two witnesses.
    RingFsync,
    /// As `RingFsync`, but the members acknowledge before the fsync.
    RingOs,
    /// This ring: three database members, two of which apply.
    RingApplies,
}

impl Setup {
    /// The setups that the ring is compared with.
    pub(super) const OF_OTHERS: [Self; 4] = [
        Self::SemiSync,
        Self::LeanSemiSync,
        Self::SyncedSemiSync,
        Self::GroupReplication,
    ];

    /// The setup's name in the figures.
    pub(super) fn key(self) -> &'static str {
        self.names().0
    }

    /// A description of the setup in one line.
    pub(super) fn description(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        let [key, description] = match self {
            Self::StockAsync => ["stock_async", "stock mysqld alone, no replica attached"],
            Self::SemiSync => [
                "semi_sync",
                "stock lossless semi-sync (AFTER_SYNC, one ack of two), both replicas apply",
            ],
            Self::LeanSemiSync => [
                "lean_semi_sync",
                "the same, the replicas' applier threads stopped: relay log only, no fsync",
            ],
            Self::SyncedSemiSync => [
                "synced_semi_sync",
                "the same with sync_relay_log = 1: as durable as this ring, and nothing applies",
            ],
            Self::GroupReplication => [
                "group_replication",
                "Group Replication of three, single primary, MySQL's defaults: both secondaries apply, nothing but the primary's binlog is forced before a commit",
            ],
            Self::RingFsync => [
                "ring_fsync",
                "this ring: database member and two witnesses, fsync before each ack",
            ],
            Self::RingOs => [
                "ring_os",
                "this ring with durability = \"os\": ack after the write, before any fsync",
            ],
            Self::RingApplies => [
                "ring_applies",
                "this ring: three database members, fsync before each ack, two of them apply: the work of two stock replicas",
            ],
        };
        (key, description)
    }

    /// Whether it needs the `witness` binary.
    pub(super) fn is_ring(self) -> bool {
        matches!(self, Self::RingFsync | Self::RingOs | Self::RingApplies)
    }

    /// Returns true for a setup with two more mysqlds.
    fn has_replicas(self) -> bool {
        self.is_semi_sync() || matches!(self, Self::GroupReplication | Self::RingApplies)
    }

    fn is_semi_sync(self) -> bool {
        matches!(
            self,
            Self::SemiSync | Self::LeanSemiSync | Self::SyncedSemiSync
        )
    }
}

/// Commits of a primary since its start: those that waited for an acknowledgement (a commit group counts once), and those that did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledgements {
    pub(super) waited_for: u64,
    pub(super) let_through: u64,
}

impl Acknowledgements {
    /// Checks that the commits between `before` and now waited as `setup` requires. Commits without acknowledgements would invalidate the
    /// comparison.
    pub(super) fn check(self, before: Self, setup: Setup) -> Result<()> {
        if setup == Setup::StockAsync {
            ensure!(
                self.waited_for == before.waited_for,
                "asynchronous commits waited for an acknowledgement"
            );
        } else {
            ensure!(
                self.waited_for > before.waited_for,
                "no commit waited for an acknowledgement"
            );
            ensure!(
                self.let_through == before.let_through,
                "{} commits did not wait for an acknowledgement",
                self.let_through - before.let_through
            );
        }
        Ok(())
    }
}

/// A running setup: its primary and the acknowledging processes. Dropping it ends them all.
pub(super) struct Bed {
    setup: Setup,
    /// The replicas are declared before the primary, so that they end before it.
    replicas: Vec<Mysqld>,
    ring: Option<Cluster>,
    primary: Mysqld,
}

impl Bed {
    /// Starts `setup` with fresh copies of the data in `folder`, which must not exist. `witness` is the program of the members.
    pub(super) fn make(
        setup: Setup,
        data: &Template,
        folder: &Path,
        witness: &Path,
    ) -> Result<Self> {
        let mut primary = data.copy(1, &folder.join("primary"))?;
        let mut replicas = Vec::new();
        if setup.has_replicas() {
            for server_id in [2, 3] {
                replicas.push(data.copy(server_id, &folder.join(format!("replica-{server_id}")))?);
            }
        }
        // Syncs the copies before any measurement.
        rustix::fs::sync();
        for server in replicas.iter_mut().chain([&mut primary]) {
            if setup == Setup::GroupReplication {
                server.add_arguments(Group::arguments());
            }
            server.start()?;
        }
        let ring = match setup.is_ring() {
            true => {
                let folder = folder.join("ring");
                Some(launch_ring(setup, &primary, &replicas, &folder, witness)?)
            }
            false => None,
        };
        if setup.is_semi_sync() {
            attach(setup, &primary, &replicas)?;
        }
        if setup == Setup::GroupReplication {
            let group = Group::of(1 + replicas.len(), None)?;
            group.begin(&primary)?;
            for (number, replica) in (1..).zip(&replicas) {
                group.join(number, replica)?;
            }
        }
        Ok(Self {
            setup,
            replicas,
            ring,
            primary,
        })
    }

    pub(super) fn primary(&self) -> &Mysqld {
        &self.primary
    }

    /// Returns the process ids of the ring's members, the primary's member first. Empty if the setup has no ring.
    pub(super) fn members(&self) -> Vec<u32> {
        let ring = self.ring.iter();
        ring.flat_map(|ring| (0..ring.size()).filter_map(|member| ring.process_id(member)))
            .collect()
    }

    /// Counts of the primary's commits so far.
    pub(super) fn acknowledgements(&self) -> Result<Acknowledgements> {
        if self.setup == Setup::GroupReplication {
            return Ok(Acknowledgements {
                waited_for: Group::certified(&self.primary)?,
                let_through: 0,
            });
        }
        let client = self.primary.client();
        let count = |name| -> Result<u64> { Ok(client.status(name)?.parse()?) };
        Ok(Acknowledgements {
            waited_for: count("Rpl_semi_sync_source_yes_tx")?,
            let_through: count("Rpl_semi_sync_source_no_tx")?,
        })
    }

    /// Waits until all work of the previous step is done.
    pub(super) fn settle(&self) -> Result<()> {
        if !matches!(self.setup, Setup::LeanSemiSync | Setup::SyncedSemiSync) {
            let gtids = self.primary.client().gtid_executed()?;
            for replica in &self.replicas {
                replica.client().wait_for_gtids(&gtids, CATCH_UP_LIMIT)?;
            }
        }
        Ok(())
    }
}

fn attach(setup: Setup, primary: &Mysqld, replicas: &[Mysqld]) -> Result<()> {
    let source = primary.client();
    source.enable_semi_sync_source(1)?;
    for replica in replicas {
        if setup == Setup::SyncedSemiSync {
            replica.client().sql("SET GLOBAL sync_relay_log = 1")?;
        }
        replica.replicate_from(primary, true)?;
        if setup != Setup::SemiSync {
            replica.client().sql("STOP REPLICA SQL_THREAD")?;
        }
    }
    let all = replicas.len().to_string();
    source.wait_for_status("Rpl_semi_sync_source_clients", &all, ACKNOWLEDGER_LIMIT)?;
    source.wait_for_status("Rpl_semi_sync_source_status", "ON", ACKNOWLEDGER_LIMIT)
}

fn launch_ring(
    setup: Setup,
    primary: &Mysqld,
    replicas: &[Mysqld],
    folder: &Path,
    witness: &Path,
) -> Result<Cluster> {
    let durability = match setup {
        Setup::RingOs => "durability = \"os\"",
        _ => "durability = \"fsync\"",
    };
    let members = match setup {
        Setup::RingApplies => {
            let servers = (1..).zip([primary].into_iter().chain(replicas));
            let members = servers.map(|(number, server)| {
                let socket = server.socket();
                MemberOptions::new(
                    format!("db-{number}"),
                    "here",
                    MemberDatabase::Attached { socket },
                )
            });
            ClusterOptions::of(members.collect())
        }
        _ => ClusterOptions::around(primary),
    };
    let options = ClusterOptions {
        folder: Some(folder.to_owned()),
        heartbeat: Some(HEARTBEAT),
        ..members.with("log", durability)
    };
    Cluster::launch(witness, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_counts_only_if_commits_waited_as_they_should() {
        let counted = |waited_for, let_through| Acknowledgements {
            waited_for,
            let_through,
        };
        let before = counted(10, 3);
        for &setup in Setup::value_variants() {
            let waits = setup != Setup::StockAsync;
            assert_eq!(
                counted(20, 3).check(before, setup).is_ok(),
                waits,
                "{setup:?}: all waited"
            );
            assert!(
                counted(20, 4).check(before, setup).is_err(),
                "{setup:?}: one did not wait, others did"
            );
            assert_eq!(
                counted(10, 9).check(before, setup).is_ok(),
                !waits,
                "{setup:?}: none waited"
            );
        }
    }
}
