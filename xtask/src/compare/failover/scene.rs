//! The ring of the comparison: nine processes in three regions, their writers, and the waiting for what should happen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::Value;
use testkit::bounded_run;
use testkit::bounded_run::Finished;
use testkit::ring::{FarMember, FarRing, FarRingOptions};

use crate::compare::failover::databases::{Databases, Verdict};
use crate::compare::failover::events::{Accounts, Acknowledged, Event, Moment, events};
use crate::compare::failover::options::{Options, Programs, ensure_goes_on};

const REGIONS: [&str; 3] = ["a", "b", "c"];
/// One database member and two witnesses.
const MEMBERS_OF_A_REGION: usize = 3;
const READY_LIMIT: Duration = Duration::from_secs(90);
const COMMIT_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// For how long all must be well before something is done to the ring.
const CALM: Duration = Duration::from_millis(700);
/// What a member across the longest distance may be behind under load.
const CAUGHT_UP_ENTRIES: u64 = 100;
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Scene {
    ring: FarRing,
    databases: Databases,
    accounts: Accounts,
    witness: PathBuf,
    heartbeat_ms: u64,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Scene {
    /// Starts the ring and waits until it commits.
    pub(super) fn set(
        options: &Options,
        programs: &Programs,
        heartbeat_ms: u64,
        stop: Arc<AtomicBool>,
        bar: ProgressBar,
    ) -> Result<Self> {
        let of_regions = (0..REGIONS.len()).map(|region| region * MEMBERS_OF_A_REGION);
        let databases = Databases::prepare(options, programs, of_regions)?;
        let ring = FarRing::prepare(FarRingOptions {
            members: members(&programs.witness, &databases),
            inside: options.inside(),
            across: options.across(),
            toml: format!(
                "[raft]\nheartbeat = \"{heartbeat_ms}ms\"\n\n[log]\ndisk_reserve_bytes = 0\n\n{}",
                databases.toml()
            ),
            mysql: Vec::new(),
            folder: None,
        })?;
        let members = (0..ring.size()).filter(|index| ring.member(*index).database);
        let accounts = members.map(|index| (index, account_of(&ring, index)));
        let mut scene = Self {
            accounts: Accounts::new(accounts.collect::<Vec<_>>()),
            ring,
            databases,
            witness: programs.witness.clone(),
            heartbeat_ms,
            stop,
            bar,
        };
        scene.say("starting nine members");
        for index in (0..scene.ring.size()).rev() {
            scene.start(index, index == 0)?;
        }
        scene.wait_until("the first primary is open", |scene| {
            let answer = scene.ring.get(0, "/primary");
            Ok(answer.is_ok_and(|answer| answer.status == 200))
        })?;
        let ring = &scene.ring;
        scene
            .databases
            .begin(ring, |index| account_of(ring, index))?;
        Ok(scene)
    }

    /// One more of the measurements is done.
    pub(super) fn done(&self) {
        self.bar.inc(1);
    }

    pub(super) fn say(&self, what: &str) {
        self.bar
            .set_message(format!("heartbeat {} ms: {what}", self.heartbeat_ms));
        // Without a terminal nobody sees the bar.
        if self.bar.is_hidden() {
            eprintln!(
                "{}: heartbeat {} ms: {what}",
                self.bar.position(),
                self.heartbeat_ms
            );
        }
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.ring.member(index).name
    }

    /// The database members other than `leader`, one after the other.
    pub(super) fn database_but(&self, leader: usize, number: u32) -> usize {
        let others = (1..REGIONS.len()).map(|step| {
            let region = (leader / MEMBERS_OF_A_REGION + step) % REGIONS.len();
            region * MEMBERS_OF_A_REGION
        });
        let others: Vec<usize> = others.collect();
        others[number as usize % others.len()]
    }

    pub(super) fn start(&mut self, index: usize, bootstrap: bool) -> Result<()> {
        let mut arguments = Vec::new();
        if self.ring.member(index).database {
            let account = account_of(&self.ring, index);
            arguments = self.databases.arguments(&account);
        }
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if bootstrap {
            arguments.push("--bootstrap");
        }
        self.ring.start(index, &arguments)
    }

    /// Kills a member and what is beside it, as a host dies.
    pub(super) fn kill(&mut self, index: usize) -> Result<()> {
        // The member first: it would start its mysqld again.
        self.ring.kill(index)?;
        self.databases.kill(index)
    }

    /// Waits until a database member serves, its region is the quorum, everybody has caught up, and commits go on; for a
    /// while. Answers who leads.
    pub(super) fn settled(&mut self) -> Result<usize> {
        let deadline = Instant::now() + READY_LIMIT;
        let mut calm: Option<(usize, Instant)> = None;
        loop {
            self.look_after()?;
            match self.standing() {
                Ok(leader) => {
                    let since = match calm {
                        Some((before, since)) if before == leader => since,
                        _ => Instant::now(),
                    };
                    calm = Some((leader, since));
                    let recent = Moment::now().minus_ms(CALM.as_millis() as u64 / 2);
                    self.accounts.forget(recent);
                    let commits = self
                        .accounts
                        .look()?
                        .iter()
                        .any(|one| one.by == leader && one.at >= recent);
                    if since.elapsed() >= CALM && commits {
                        return Ok(leader);
                    }
                }
                Err(why) => {
                    calm = None;
                    if Instant::now() > deadline {
                        return Err(self.failure(&format!("the ring does not settle: {why}")));
                    }
                }
            }
            ensure!(
                Instant::now() < deadline + CALM * 4,
                "the ring does not settle: no commits"
            );
            thread::sleep(LOOK * 5);
        }
    }

    /// Who leads a ring in which all is well, or what is not.
    fn standing(&self) -> Result<usize> {
        let leading = (0..self.ring.size())
            .filter_map(|index| Some((index, self.view(index).ok()?)))
            .filter(|(_, view)| view.serving)
            .collect::<Vec<_>>();
        let [(leader, view)] = leading.as_slice() else {
            bail!("{} members serve", leading.len());
        };
        ensure!(self.ring.member(*leader).database, "a witness leads");
        let first = leader / MEMBERS_OF_A_REGION * MEMBERS_OF_A_REGION + 1;
        let region: BTreeSet<u64> = (first as u64..).take(MEMBERS_OF_A_REGION).collect();
        ensure!(
            view.voter_sets == [region],
            "the quorum is {:?}",
            view.voter_sets
        );
        for peer in &view.peers {
            let fresh = peer
                .answered_seconds
                .is_some_and(|age| age * 1e3 < 2.0 * self.heartbeat_ms as f64);
            let near = peer
                .behind_entries
                .is_some_and(|behind| behind <= CAUGHT_UP_ENTRIES);
            ensure!(fresh && near, "member {} is not level: {peer:?}", peer.id);
        }
        ensure!(
            view.peers.len() + 1 == self.ring.size(),
            "members are missing"
        );
        self.databases.standing(&self.ring, *leader)?;
        Ok(*leader)
    }

    fn view(&self, index: usize) -> Result<View> {
        let answer = self.ring.get(index, "/status")?;
        Ok(serde_json::from_value(answer.json()?)?)
    }

    /// Waits for the first commit after `since` that a member other than `not_by` acknowledges.
    pub(super) fn first_commit(&mut self, since: Moment, not_by: usize) -> Result<Acknowledged> {
        let deadline = Instant::now() + COMMIT_LIMIT;
        loop {
            self.look_after()?;
            let seen = self.accounts.look()?.iter();
            let first = seen.filter(|one| one.by != not_by && one.at > since).min();
            if let Some(first) = first {
                return Ok(*first);
            }
            if Instant::now() > deadline {
                return Err(self.failure("nobody commits"));
            }
            thread::sleep(LOOK / 4);
        }
    }

    /// What was acknowledged from `since` until a while from now.
    pub(super) fn acknowledged_around(&mut self, since: Moment) -> Result<Vec<Acknowledged>> {
        thread::sleep(CALM / 2);
        self.accounts.look()?;
        self.accounts.forget(since);
        Ok(self.accounts.look()?.to_vec())
    }

    /// What the members' logs tell since `since`, in the order of time.
    pub(super) fn events(&self, since: Moment) -> Vec<Event> {
        let of_member = |index| events(index, &self.ring.output(index), since);
        let mut all: Vec<Event> = (0..self.ring.size()).flat_map(of_member).collect();
        all.sort_by_key(|event| event.at);
        all
    }

    /// Runs the `witness` command line with a member's configuration.
    pub(super) fn witness(&self, arguments: &[&str], config_of: usize) -> Result<Finished> {
        let mut command = Command::new(&self.witness);
        command
            .args(arguments)
            .arg("--config")
            .arg(self.ring.config(config_of));
        let what = format!("witness {}", arguments.join(" "));
        bounded_run::run(what, command, Vec::new(), COMMAND_LIMIT)
    }

    /// Ends the writing, waits until all logs are equal, and holds every acknowledged commit against every log.
    pub(super) fn end(mut self) -> Result<Verdict> {
        self.settled()?;
        self.say("comparing everything with what was acknowledged");
        self.databases.end(&self.ring)?;
        self.wait_until("everything is equal", |scene| {
            Ok(scene.logs_are_level() && scene.databases.are_level())
        })?;
        let equal = self.databases.compare(&self.accounts, &self.ring);
        let equal = equal.map_err(|error| self.failure(&format!("{error:#}")))?;
        for index in 0..self.ring.size() {
            self.kill(index)?;
        }
        let verdict = self.databases.verdict(&self.accounts, &self.ring, equal)?;
        if !verdict.lost.is_empty() {
            let folder = self.ring.keep_folder().display().to_string();
            eprintln!("the members' files are kept in {folder}");
        }
        Ok(verdict)
    }

    fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while !condition(self)? {
            self.look_after()?;
            if Instant::now() > deadline {
                return Err(self.failure(&format!("not within {READY_LIMIT:?}: {what}")));
            }
            thread::sleep(LOOK * 5);
        }
        Ok(())
    }

    fn logs_are_level(&self) -> bool {
        let views = (0..self.ring.size()).map(|index| self.view(index));
        let Ok(views) = views.collect::<Result<Vec<_>>>() else {
            return false;
        };
        let first = &views[0].log_end;
        !first.is_null()
            && views
                .iter()
                .all(|view| view.log_end == *first && view.committed == *first)
    }

    /// Ends with an error when the user or a member has had enough.
    fn look_after(&mut self) -> Result<()> {
        ensure_goes_on(&self.stop)?;
        match self.ring.ended() {
            Some(ended) => Err(self.failure(&ended)),
            None => Ok(()),
        }
    }

    fn failure(&mut self, what: &str) -> anyhow::Error {
        let words = self.ring.last_words();
        let folder = self.ring.keep_folder().display().to_string();
        anyhow::anyhow!("{what}\n{words}the members' files are kept in {folder}")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The members before their mysqlds, which they would start again.
        for index in 0..self.ring.size() {
            // Those that have ended are not there to be killed.
            let _ = self.kill(index);
        }
    }
}

fn members(witness: &Path, databases: &Databases) -> Vec<FarMember> {
    let mut members = Vec::new();
    for region in REGIONS {
        for number in 0..MEMBERS_OF_A_REGION {
            let database = number == 0;
            let (name, program) = match database {
                true => (format!("db-{region}"), databases.member_program(witness)),
                false => (format!("witness-{region}{number}"), witness),
            };
            members.push(FarMember {
                name,
                region: region.to_owned(),
                database,
                program: program.to_owned(),
                beside: databases.beside(members.len()),
                native: false,
            });
        }
    }
    members
}

fn account_of(ring: &FarRing, index: usize) -> PathBuf {
    ring.directory(index).join("acknowledged")
}

/// What is needed of a member's `/status`.
#[derive(Deserialize)]
struct View {
    serving: bool,
    voter_sets: Vec<BTreeSet<u64>>,
    peers: Vec<Peer>,
    log_end: Value,
    committed: Value,
}

#[derive(Debug, Deserialize)]
struct Peer {
    id: u64,
    behind_entries: Option<u64>,
    answered_seconds: Option<f64>,
}
