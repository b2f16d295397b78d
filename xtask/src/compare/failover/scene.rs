//! The ring of the comparison: nine processes in three regions, their writers, and the waiting for what should happen.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use testkit::bounded_run::Finished;
use testkit::cluster::{Cluster, ClusterOptions, Level};

use crate::compare::failover::databases::{Databases, Verdict};
use crate::compare::failover::events::{Accounts, Acknowledged, Event, Moment, events};
use crate::compare::failover::options::{Options, Programs, ensure_goes_on};

const REGIONS: [&str; 3] = ["a", "b", "c"];
const READY_LIMIT: Duration = Duration::from_secs(90);
const COMMIT_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// For how long all must be well before something is done to the ring.
const CALM: Duration = Duration::from_millis(700);

/// The ring, its databases and the writers that ask them.
pub(super) struct Scene {
    ring: Cluster,
    databases: Databases,
    accounts: Accounts,
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
        let databases = Databases::new(options, programs);
        let mut of_regions = Vec::new();
        for (server_id, region) in (1..).zip(REGIONS) {
            of_regions.push((region, databases.beside(server_id)?));
        }
        let cluster = ClusterOptions {
            distance: Some((options.inside(), options.across())),
            ..ClusterOptions::in_regions(of_regions)
                .with("logging", "format = \"json\"")
                .with("raft", format!("heartbeat = \"{heartbeat_ms}ms\""))
                .with("log", "disk_reserve_bytes = 0")
        };
        let ring = Cluster::prepare(&programs.witness, cluster)?;
        let members = ring.databases().into_iter();
        let accounts = members.map(|index| (index, account_of(&ring, index)));
        let mut scene = Self {
            accounts: Accounts::new(accounts.collect::<Vec<_>>()),
            ring,
            databases,
            heartbeat_ms,
            stop,
            bar,
        };
        scene.say("starting nine members");
        for index in (0..scene.ring.size()).rev() {
            scene.start(index, index == 0)?;
        }
        scene.wait_until("the first primary is open", |scene| {
            Ok(scene.ring.primary_now() == Some(0))
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
        self.ring.name(index)
    }

    /// The database members other than `leader`, one after the other.
    pub(super) fn database_but(&self, leader: usize, number: u32) -> usize {
        let mut databases = self.ring.databases();
        let place = databases.iter().position(|index| *index == leader);
        databases.rotate_left(place.unwrap_or(0));
        let others = &databases[1..];
        others[number as usize % others.len()]
    }

    pub(super) fn start(&mut self, index: usize, bootstrap: bool) -> Result<()> {
        let mut arguments = Vec::new();
        if self.ring.databases().contains(&index) {
            let account = account_of(&self.ring, index);
            arguments = self.databases.arguments(&account);
        }
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if bootstrap {
            arguments.push("--bootstrap");
        }
        self.ring.start_with(index, &arguments)
    }

    /// Kills a member and what is beside it, as a host dies.
    pub(super) fn kill(&mut self, index: usize) -> Result<()> {
        self.ring.kill_host(index)
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
        self.ring.standing(Level {
            answered: Duration::from_millis(2 * self.heartbeat_ms),
            lag_seconds: 1,
        })
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
        self.ring.cli_of(config_of, arguments)
    }

    /// Ends the writing, waits until all logs are equal, and holds every acknowledged commit against every log.
    pub(super) fn end(mut self) -> Result<Verdict> {
        self.settled()?;
        self.say("comparing everything with what was acknowledged");
        self.databases.end(&self.ring)?;
        self.wait_until("everything is equal", |scene| {
            Ok(scene.ring.logs_are_level() && scene.ring.same_executed().is_ok())
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

    /// Ends with an error when the user or a member has had enough.
    fn look_after(&mut self) -> Result<()> {
        ensure_goes_on(&self.stop)?;
        let ended = self.ring.look_after();
        ended.map_err(|ended| self.failure(&ended.to_string()))
    }

    fn failure(&mut self, what: &str) -> anyhow::Error {
        let words = self.ring.last_words();
        let folder = self.ring.keep_folder().display().to_string();
        anyhow::anyhow!("{what}\n{words}the members' files are kept in {folder}")
    }
}

fn account_of(ring: &Cluster, index: usize) -> PathBuf {
    ring.directory(index).join("acknowledged")
}
