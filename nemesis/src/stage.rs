//! The ring: three regions with a database member and two witnesses each, at places of their own, mysqlds as their members'
//! children; and what is to be seen of it from outside.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use serde::Deserialize;
use serde_json::Value;
use testkit::bounded_run::{self, Finished};
use testkit::mysql_tree::MysqlTree;
use testkit::real_disks::LoopDisk;
use testkit::real_disks::SmallDisk;
use testkit::ring::{ChildServer, FarMember, FarRing, FarRingOptions, http_get_within};
use testkit::wait::{eventually, try_eventually};

use crate::arguments::Mutation;
use crate::guide::Place;

/// The account of clients, without any right to write where `read_only` is on.
pub(crate) const CLIENT: &str = "app";
/// Its password.
pub(crate) const CLIENT_PASSWORD: &str = "app-password";
/// How the names of tables begin that clients make; behind it is the number.
pub(crate) const MADE: &str = "made_";
/// How many counters are incremented.
pub(crate) const COUNTERS: u64 = 4;
const REGIONS: [&str; 3] = ["a", "b", "c"];
/// One database member and two witnesses.
const MEMBERS_OF_A_REGION: usize = 3;
/// Members whose logs have a disk of their own: a database member and a witness of each of the other regions.
const WITH_A_DISK: [usize; 3] = [0, 4, 7];
/// More than a long run writes.
pub(crate) const DISK_BYTES: u64 = 4 << 30;
/// The region whose mysqld applies by its own replica threads; the others' members apply row by row.
const NATIVE: &str = "c";
/// How long clients may go on at a primary whose member does not serve. Shorter than the default, so that cuts outlast it.
pub(crate) const FENCE_AFTER: Duration = Duration::from_secs(3);
/// `mysql.demote_after` of its members.
pub(crate) const DEMOTE_AFTER: Duration = Duration::from_secs(5);
/// In place of it, where the fence is taken away: longer than any run.
const NEVER: Duration = Duration::from_secs(86_400);
const VIEW_LIMIT: Duration = Duration::from_millis(1500);
/// Within which a member answers after its start, also on a busy machine.
const STARTED: Duration = Duration::from_secs(10);
const COMMAND_LIMIT: Duration = Duration::from_secs(90);
/// What a member across the longest distance may be behind under load.
const CAUGHT_UP_ENTRIES: u64 = 100;
/// A peer that answered longer ago is away.
const FRESH_SECONDS: f64 = 2.0;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) ring: FarRing,
    /// By region.
    servers: Vec<ChildServer>,
    disks: Vec<(usize, SmallDisk)>,
    /// Under the data of the mysqlds, by region; none where they cannot be had.
    loop_disks: Vec<LoopDisk>,
    /// Why they cannot.
    without_loops: Option<String>,
    witness: PathBuf,
}

impl Stage {
    /// Makes it; no process runs yet. Everything that is left on disk is below `folder`.
    pub(crate) fn set(
        witness: &Path,
        folder: &Path,
        inside: Duration,
        across: Duration,
        mutation: Option<Mutation>,
    ) -> Result<Self> {
        let fence_after = match mutation {
            Some(Mutation::NoFence) => NEVER,
            None => FENCE_AFTER,
        };
        let tree = MysqlTree::require();
        let (loop_disks, without_loops) = match loop_disks(folder) {
            Ok(disks) => (disks, None),
            Err(why) => (Vec::new(), Some(format!("{why:#}"))),
        };
        let mut servers = Vec::new();
        for (number, region) in (1..).zip(REGIONS) {
            let data_dir = disk_folder(folder, region).join("mysqld");
            servers.push(ChildServer::prepare(&tree, number, Some(data_dir))?);
        }
        let ring = FarRing::prepare(FarRingOptions {
            members: members(witness, &servers),
            inside,
            across,
            toml: "[log]\ndisk_reserve_bytes = 0\n".to_owned(),
            mysql: vec![
                format!("fence_after = \"{}s\"", fence_after.as_secs()),
                format!("demote_after = \"{}s\"", DEMOTE_AFTER.as_secs()),
            ],
            folder: Some(folder.to_owned()),
        })?;
        let mut disks = Vec::new();
        for index in WITH_A_DISK {
            let log = ring.directory(index).join("log");
            fs::create_dir_all(&log)?;
            disks.push((index, SmallDisk::mount(&log, DISK_BYTES)?));
        }
        Ok(Self {
            ring,
            servers,
            disks,
            loop_disks,
            without_loops,
            witness: witness.to_owned(),
        })
    }

    /// Starts all members.
    pub(crate) fn bootstrap(&mut self) -> Result<()> {
        for index in (0..self.ring.size()).rev() {
            let arguments: &[&str] = match index {
                0 => &["--bootstrap"],
                _ => &[],
            };
            self.ring.start(index, arguments)?;
        }
        Ok(())
    }

    /// Makes the clients' account and tables, through the ring.
    pub(crate) fn furnish(&self, primary: usize) -> Result<()> {
        let counters: Vec<String> = (0..COUNTERS).map(|id| format!("({id}, 0)")).collect();
        // Rows that are appended have no unique key, so that one that is applied twice is there twice.
        self.server(primary).client().sql(&format!(
            "CREATE USER {CLIENT} IDENTIFIED BY '{CLIENT_PASSWORD}'; GRANT ALL ON *.* TO {CLIENT}; \
             REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM {CLIENT}; \
             CREATE DATABASE nemesis; USE nemesis; \
             CREATE TABLE parents (id BIGINT UNSIGNED PRIMARY KEY); \
             CREATE TABLE children (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, parent BIGINT UNSIGNED NOT NULL, \
                FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE); \
             CREATE TABLE xa_rows (id BIGINT UNSIGNED PRIMARY KEY); \
             CREATE TABLE ticks (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, at TIMESTAMP(6) NOT NULL); \
             CREATE EVENT tick ON SCHEDULE EVERY 1 SECOND DO INSERT INTO nemesis.ticks (at) VALUES (NOW(6)); \
             CREATE TABLE appended (id BIGINT UNSIGNED, client INT, note VARCHAR(64), KEY (id)); \
             CREATE TABLE increments (id BIGINT UNSIGNED PRIMARY KEY, counter INT); \
             CREATE TABLE counters (counter INT PRIMARY KEY, n BIGINT UNSIGNED); \
             CREATE TABLE pair (half INT PRIMARY KEY, n BIGINT UNSIGNED); \
             INSERT INTO counters VALUES {}; INSERT INTO pair VALUES (0, 0), (1, 0)",
            counters.join(", ")
        ))?;
        Ok(())
    }

    /// Waits until the event has run at the primary.
    pub(crate) fn event_runs(&self, primary: usize, limit: Duration) -> Result<()> {
        let client = self.server(primary).client();
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

    /// Lets the event run or not, through the primary: as a client, who is refused where the leadership has moved since.
    pub(crate) fn let_event_run(&self, primary: usize, runs: bool) -> Result<()> {
        let state = match runs {
            true => "ENABLE",
            false => "DISABLE",
        };
        let endpoint = Endpoint::unix(self.server(primary).socket());
        let options = ConnectOptions::new(endpoint, CLIENT, CLIENT_PASSWORD);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let mut session = Connection::open(&options).await?;
            // Without it the event would be the client's from now on.
            let words = format!("ALTER DEFINER = root@localhost EVENT nemesis.tick {state}");
            session.execute(&words).await?;
            anyhow::Ok(())
        })
    }

    /// The database members, by their place in the ring.
    pub(crate) fn databases(&self) -> impl Iterator<Item = usize> + use<> {
        (0..REGIONS.len()).map(|region| region * MEMBERS_OF_A_REGION)
    }

    /// The mysqld beside a database member, or that of its region.
    pub(crate) fn server(&self, member: usize) -> &ChildServer {
        &self.servers[member / MEMBERS_OF_A_REGION]
    }

    /// What clients know of the database members, in the order of [`Self::databases`].
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |index: usize| Place {
            name: self.name(index).to_owned(),
            http: self.ring.http(index),
            socket: self.server(index).socket(),
        };
        self.databases().map(place).collect()
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        &self.ring.member(index).name
    }

    /// The members of the region of a member.
    pub(crate) fn neighbours(&self, index: usize) -> std::ops::Range<usize> {
        let first = index / MEMBERS_OF_A_REGION * MEMBERS_OF_A_REGION;
        first..first + MEMBERS_OF_A_REGION
    }

    /// Members whose log has a disk of its own.
    pub(crate) fn with_a_disk(&self) -> impl Iterator<Item = usize> + '_ {
        self.disks.iter().map(|(index, _)| *index)
    }

    /// The disk of a member's log.
    pub(crate) fn disk(&self, index: usize) -> Result<&SmallDisk> {
        let mut disks = self.disks.iter();
        let found = disks.find(|(of, _)| *of == index);
        Ok(&found.context("this member has no disk of its own")?.1)
    }

    /// The disk with the data of the mysqld beside a database member.
    pub(crate) fn loop_disk(&self, member: usize) -> Result<&LoopDisk> {
        let disk = self.loop_disks.get(member / MEMBERS_OF_A_REGION);
        disk.context("its mysqld has no disk of its own")
    }

    /// Why the mysqlds have no disks of their own, if they have none.
    pub(crate) fn without_loops(&self) -> Option<&str> {
        self.without_loops.as_deref()
    }

    /// Runs the `witness` command line with a member's configuration.
    pub(crate) fn witness(&self, arguments: &[&str]) -> Result<Finished> {
        let mut command = Command::new(&self.witness);
        // All files are the same but for the member's own part.
        command
            .args(arguments)
            .arg("--config")
            .arg(self.ring.config(0));
        let what = format!("witness {}", arguments.join(" "));
        bounded_run::run(what, command, Vec::new(), COMMAND_LIMIT)
    }

    /// Fails when a member has ended that should run.
    pub(crate) fn look_after(&mut self) -> Result<()> {
        match self.ring.ended() {
            Some(ended) => bail!("{ended}"),
            None => Ok(()),
        }
    }

    /// Who is the primary of a ring in which everybody has recovered, or what is not as it should be.
    pub(crate) fn standing(&self) -> Result<usize> {
        let views = (0..self.ring.size()).map(|index| {
            self.view(index)
                .with_context(|| format!("{} does not answer", self.name(index)))
        });
        let views: Vec<View> = views.collect::<Result<_>>()?;
        let serving: Vec<usize> = (0..views.len())
            .filter(|index| views[*index].serving)
            .collect();
        let [leader] = serving[..] else {
            bail!("{} members serve", serving.len());
        };
        let name = self.name(leader);
        ensure!(self.ring.member(leader).database, "{name} leads, a witness");
        let region: BTreeSet<u64> = self
            .neighbours(leader)
            .map(|index| self.ring.id(index))
            .collect();
        let sets = &views[leader].voter_sets;
        ensure!(*sets == [region], "{name} leads and the quorum is {sets:?}");
        let peers = &views[leader].peers;
        ensure!(
            peers.len() + 1 == self.ring.size(),
            "{name} has other peers"
        );
        for peer in peers {
            let fresh = peer.answered_seconds.is_some_and(|age| age < FRESH_SECONDS);
            let near = peer
                .behind_entries
                .is_some_and(|behind| behind <= CAUGHT_UP_ENTRIES);
            ensure!(fresh && near, "a member is not level: {peer:?}");
        }
        for index in self.databases() {
            let question = match index == leader {
                true => "/primary",
                false => "/replica?lag=2s",
            };
            let answer = http_get_within(self.ring.http(index), question, VIEW_LIMIT)?;
            let (name, body) = (self.name(index), &answer.body);
            ensure!(answer.status == 200, "{name} {question}: {body}");
        }
        Ok(leader)
    }

    /// A process that was started a moment ago does not hear a SIGTERM yet, and ends by it: until it answers, or as long as one
    /// takes to start at most.
    pub(crate) fn wait_for_start(&self, index: usize) {
        // What does not answer is not waited for any longer.
        let _ = eventually("it answers", STARTED, || self.view(index));
    }

    fn view(&self, index: usize) -> Result<View> {
        let answer = http_get_within(self.ring.http(index), "/status", VIEW_LIMIT)?;
        Ok(serde_json::from_value(answer.json()?)?)
    }

    /// What everybody says of itself, for a log.
    pub(crate) fn words(&self) -> String {
        let say = |index: usize| {
            let words = match http_get_within(self.ring.http(index), "/status", VIEW_LIMIT)
                .and_then(|answer| answer.json())
            {
                Ok(view) => format!(
                    "role {} serving {} term {} leader {} log_end {} committed {} sets {} mysql {}",
                    view["role"],
                    view["serving"],
                    view["term"],
                    view["leader"],
                    view["log_end"],
                    view["committed"],
                    view["voter_sets"],
                    view["mysql"]
                ),
                Err(error) => format!("{error:#}"),
            };
            format!(
                "  {} ({}): {words}\n",
                self.name(index),
                self.ring.id(index)
            )
        };
        (0..self.ring.size()).map(say).collect()
    }

    /// Copies what would go with the disks, before they go.
    pub(crate) fn keep_disks(&mut self) {
        for disk in &mut self.loop_disks {
            disk.keep();
        }
        for (index, _) in &self.disks {
            let log = self.ring.directory(*index).join("log");
            let kept = self.ring.directory(*index).join("log-kept");
            let _ = fs::create_dir(&kept);
            for entry in fs::read_dir(&log).into_iter().flatten().flatten() {
                let _ = fs::copy(entry.path(), kept.join(entry.file_name()));
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What waits for a frozen disk cannot be killed.
        for disk in &self.loop_disks {
            let _ = disk.thaw();
        }
        // The members before their mysqlds, which they would start again.
        for index in 0..self.ring.size() {
            let _ = self.ring.kill(index);
        }
        for server in &self.servers {
            let _ = server.kill();
        }
    }
}

/// A disk for the data of each mysqld.
fn loop_disks(folder: &Path) -> Result<Vec<LoopDisk>> {
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

fn members(witness: &Path, servers: &[ChildServer]) -> Vec<FarMember> {
    let mut members = Vec::new();
    for (region, server) in REGIONS.iter().zip(servers) {
        for number in 0..MEMBERS_OF_A_REGION {
            let database = number == 0;
            members.push(FarMember {
                name: match database {
                    true => format!("db-{region}"),
                    false => format!("witness-{region}{number}"),
                },
                region: (*region).to_owned(),
                database,
                program: witness.to_owned(),
                beside: database.then(|| server.beside()),
                native: database && *region == NATIVE,
            });
        }
    }
    members
}

/// What is needed of a member's `/status`.
#[derive(Debug, Deserialize)]
struct View {
    serving: bool,
    voter_sets: Vec<BTreeSet<u64>>,
    peers: Vec<Peer>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is shown")]
struct Peer {
    id: Value,
    behind_entries: Option<u64>,
    answered_seconds: Option<f64>,
}
