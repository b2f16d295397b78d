//! Creates the ring, and observes its state from outside. Each of the three regions has a database member and two witnesses. Each member
//! has its own address, and each mysqld is a child of its member.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use rustix::process::Signal;
use testkit::cluster::{CLIENT, CLIENT_PASSWORD, ChildServer, Cluster, ClusterOptions, Level};
use testkit::mysql_tree::MysqlTree;
use testkit::real_disks::LoopDisk;
use testkit::wait::{eventually, try_eventually};

use crate::arguments::{Arguments, Mutation};
use crate::clients::runtime;
use crate::guide::Place;

/// Prefix of the clients' tables, before the number.
pub(crate) const MADE: &str = "made_";
/// Number of counters.
pub(crate) const COUNTERS: u64 = 4;
const REGIONS: [&str; 3] = ["a", "b", "c"];
/// Number of members in each region: one database member and two witnesses.
const MEMBERS_OF_A_REGION: usize = 3;
/// Indexes of the members with a disk of their own: the database members, and a witness in two of the regions.
const WITH_A_DISK: [usize; 5] = [0, 3, 4, 6, 7];
/// Size of each disk, in bytes. A long run writes less.
const DISK_BYTES: u64 = 4 << 30;
/// Index of the member in region `c`. Its mysqld applies with native replica threads, and the other mysqlds apply row by row.
pub(crate) const NATIVE: usize = 2 * MEMBERS_OF_A_REGION;
/// `mysql.fence_after` of the members: how long clients may use a primary while its member does not serve. It is shorter than the default,
/// so that isolations last longer than it.
pub(crate) const FENCE_AFTER: Duration = Duration::from_secs(3);
/// `mysql.demote_after` of the members.
pub(crate) const DEMOTE_AFTER: Duration = Duration::from_secs(5);
/// The value of `mysql.fence_after` for a run without the fence: longer than any run.
const NEVER: Duration = Duration::from_secs(86_400);
/// Time limit for a member to answer after its start, also on a busy machine.
const STARTED: Duration = Duration::from_secs(10);
const LEVEL: Level = Level {
    answered: Duration::from_secs(2),
    lag_seconds: 2,
};

/// The ring with its disks. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) ring: Cluster,
    /// The disks with the mysqlds' data, by region. Empty if loop devices are unavailable.
    mysqld_disks: Vec<LoopDisk>,
    /// The disks of members, each with the member's index. Empty if loop devices are unavailable.
    pub(crate) member_disks: Vec<(usize, LoopDisk)>,
    /// Why loop devices are unavailable.
    pub(crate) without_loops: Option<String>,
    /// Another build of the members' program.
    pub(crate) previous: Option<PathBuf>,
}

impl Stage {
    /// Creates the ring without starting a process. All files are below `folder`.
    pub(crate) fn set(arguments: &Arguments, folder: &Path) -> Result<Self> {
        let one_way = |milliseconds: f64| Duration::from_secs_f64(milliseconds / 1e3);
        let (inside, across) = (one_way(arguments.inside_ms), one_way(arguments.across_ms));
        let fence_after = match arguments.mutate {
            Some(Mutation::NoFence) => NEVER,
            None => FENCE_AFTER,
        };
        let tree = MysqlTree::require();
        let (mysqld_disks, without_loops) = match mysqld_disks(folder) {
            Ok(disks) => (disks, None),
            Err(why) => (Vec::new(), Some(format!("{why:#}"))),
        };
        let mut databases = Vec::new();
        for (number, region) in (1..).zip(REGIONS) {
            let data_dir = disk_folder(folder, region).join("mysqld");
            let server = ChildServer::prepare(&tree, number, Some(data_dir))?;
            databases.push((region, server.into()));
        }
        // In a soak the log's cache is small, so that it is full before memory is checked.
        let cache = match arguments.every {
            Some(_) => "1MiB",
            None => "64MiB",
        };
        let options = ClusterOptions {
            distance: Some((inside, across)),
            folder: Some(folder.to_owned()),
            ..ClusterOptions::in_regions(databases)
                .with("logging", "format = \"json\"")
                .with("log", "disk_reserve_bytes = 0")
                .with("log", format!("cache_bytes = \"{cache}\""))
                .with(
                    "mysql",
                    format!("fence_after = \"{}s\"", fence_after.as_secs()),
                )
                .with(
                    "mysql",
                    format!("demote_after = \"{}s\"", DEMOTE_AFTER.as_secs()),
                )
                .with_native(NATIVE)
        };
        let mut ring = Cluster::prepare(&arguments.witness, options)?;
        for index in 0..ring.size() {
            ring.run_other_build(index, arguments.previous.clone());
        }
        let mut member_disks = Vec::new();
        if without_loops.is_none() {
            for index in WITH_A_DISK {
                let disk = LoopDisk::mount(ring.directory(index), folder, DISK_BYTES)?;
                member_disks.push((index, disk));
            }
        }
        for disk in &mysqld_disks {
            // Syncs the copied data, so that a power cut does not lose it.
            disk.force()?;
        }
        Ok(Self {
            ring,
            mysqld_disks,
            member_disks,
            without_loops,
            previous: arguments.previous.clone(),
        })
    }

    /// Creates the clients' account and tables through the ring.
    pub(crate) fn furnish(&self, primary: usize) -> Result<()> {
        let counters: Vec<String> = (0..COUNTERS).map(|id| format!("({id}, 0)")).collect();
        // Appended rows have no unique key, so that a transaction that is applied twice leaves two rows.
        let tables = format!(
            "CREATE DATABASE nemesis; USE nemesis; \
             CREATE TABLE parents (id BIGINT UNSIGNED PRIMARY KEY); \
             CREATE TABLE children (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, parent BIGINT UNSIGNED NOT NULL, \
                FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE); \
             CREATE TABLE xa_rows (id BIGINT UNSIGNED PRIMARY KEY); \
             CREATE TABLE ticks (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, at TIMESTAMP(6) NOT NULL); \
             CREATE EVENT tick ON SCHEDULE EVERY 1 SECOND DO INSERT INTO nemesis.ticks (at) VALUES (NOW(6)); \
             CREATE TABLE appended (id BIGINT UNSIGNED, client INT, note VARCHAR(64), KEY (id)); \
             CREATE TABLE increments (id BIGINT UNSIGNED PRIMARY KEY, counter INT); \
             CREATE TABLE counters (counter INT PRIMARY KEY, n BIGINT UNSIGNED); \
             CREATE TABLE lists (list BIGINT UNSIGNED PRIMARY KEY, items TEXT NOT NULL); \
             CREATE TABLE pair (half INT PRIMARY KEY, n BIGINT UNSIGNED); \
             INSERT INTO counters VALUES {}; INSERT INTO pair VALUES (0, 0), (1, 0)",
            counters.join(", ")
        );
        self.ring.create_client(primary, &tables)
    }

    /// Waits until the scheduled event has run at the primary.
    pub(crate) fn event_runs(&self, primary: usize, limit: Duration) -> Result<()> {
        let client = self.ring.server(primary).client();
        let ticks = || client.value("SELECT COUNT(*) FROM nemesis.ticks");
        let before = ticks()?;
        let ran = try_eventually("the event runs at the primary", limit, || {
            Ok(ticks()? != before)
        });
        ran.with_context(|| {
            let events = "SELECT event_name, status, originator, @@event_scheduler FROM information_schema.events";
            format!("{:?}", client.sql(events))
        })
    }

    /// Enables or disables the scheduled event through the primary, as a client. The statement is refused if the leadership has moved.
    pub(crate) fn let_event_run(&self, primary: usize, runs: bool) -> Result<()> {
        let state = match runs {
            true => "ENABLE",
            false => "DISABLE",
        };
        let endpoint = Endpoint::unix(self.ring.server(primary).socket());
        let options = ConnectOptions::new(endpoint, CLIENT, CLIENT_PASSWORD);
        runtime()?.block_on(async {
            let mut session = Connection::open(&options).await?;
            // Without the DEFINER clause, the client's account would become the event's definer.
            let words = format!("ALTER DEFINER = root@localhost EVENT nemesis.tick {state}");
            session.execute(&words).await?;
            anyhow::Ok(())
        })
    }

    /// The database members as clients see them, in the order of [`Cluster::databases`].
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |index: usize| Place {
            name: self.ring.name(index).to_owned(),
            http: self.ring.http(index),
            socket: self.ring.server(index).socket(),
        };
        self.ring.databases().into_iter().map(place).collect()
    }

    /// The disk with a member's log and its other files.
    pub(crate) fn member_disk(&self, index: usize) -> Result<&LoopDisk> {
        let mut disks = self.member_disks.iter();
        let found = disks.find(|(of, _)| *of == index);
        Ok(&found.context("this member has no disk of its own")?.1)
    }

    /// The disk with the data of a database member's mysqld.
    pub(crate) fn mysqld_disk(&self, member: usize) -> Result<&LoopDisk> {
        let disk = self.mysqld_disks.get(member / MEMBERS_OF_A_REGION);
        disk.context("its mysqld has no disk of its own")
    }

    /// The disks of the host that a member runs on.
    fn disks_of(&self, index: usize) -> Result<Vec<&LoopDisk>> {
        let mut disks = vec![self.member_disk(index)?];
        if self.ring.databases().contains(&index) {
            disks.push(self.mysqld_disk(index)?);
        }
        Ok(disks)
    }

    /// Cuts the power of the host that a member runs on.
    pub(crate) fn cut_power(&mut self, index: usize) -> Result<()> {
        // Stops the processes first, so that the power of all disks is cut at the same moment for them. Otherwise a process could continue
        // with the second disk.
        self.ring.signal(index, Signal::STOP)?;
        if self.ring.databases().contains(&index) {
            self.ring.server(index).signal(Signal::STOP)?;
        }
        for disk in self.disks_of(index)? {
            disk.cut_power()?;
        }
        self.ring.kill_host(index)
    }

    /// Restores the power of a member's host, and starts the member.
    pub(crate) fn restore_power(&mut self, index: usize) -> Result<()> {
        for disk in self.disks_of(index)? {
            disk.restore_power()?;
        }
        self.ring.start(index)
    }

    /// Selects the other build for a member's next start. Returns the name of that build.
    pub(crate) fn change_version(&mut self, index: usize) -> Result<&'static str> {
        let previous = self.previous.clone();
        let previous = previous.context("there is no other build: give one with --previous")?;
        let is_previous = self.ring.runs_other_build(index);
        self.ring
            .run_other_build(index, (!is_previous).then_some(previous));
        Ok(match is_previous {
            true => "the newer build",
            false => "the older build",
        })
    }

    /// Returns the primary if all members have recovered. The error names the condition that does not hold.
    pub(crate) fn standing(&self) -> Result<usize> {
        self.ring.standing(LEVEL)
    }

    /// Waits until a process that has just started answers, at most `STARTED`. Before that it does not handle SIGTERM yet, and would die of
    /// the signal.
    pub(crate) fn wait_for_start(&self, index: usize) {
        // If the process does not answer in time, the fault is injected nevertheless.
        let _ = eventually("it answers", STARTED, || self.ring.status(index));
    }

    /// Keeps the images of the disks, for an investigation.
    pub(crate) fn keep_disks(&mut self) {
        let members = self.member_disks.iter_mut().map(|(_, disk)| disk);
        for disk in self.mysqld_disks.iter_mut().chain(members) {
            disk.keep();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A process that waits for a frozen disk cannot be killed.
        for disk in &self.mysqld_disks {
            let _ = disk.thaw();
        }
    }
}

/// Creates a disk for the data of each mysqld.
fn mysqld_disks(folder: &Path) -> Result<Vec<LoopDisk>> {
    let mut disks = Vec::new();
    for region in REGIONS {
        let at = disk_folder(folder, region);
        fs::create_dir_all(&at)?;
        disks.push(LoopDisk::mount(&at, folder, DISK_BYTES)?);
    }
    Ok(disks)
}

fn disk_folder(folder: &Path, region: &str) -> PathBuf {
    folder.join(format!("disk-{region}"))
}
