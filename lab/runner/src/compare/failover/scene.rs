//! The ring of the comparison: its processes in one region or in three, its writers, and functions that wait for a state of the ring.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::bounded_run::Finished;
use testkit::cluster::{Cluster, ClusterOptions, Level, MemberDatabase, MemberOptions};
use testkit::distance;

use crate::compare::failover::databases::{Databases, Verdict};
use crate::compare::failover::events::{Accounts, Acknowledged, Event, Moment, events};
use crate::compare::failover::options::{Death, Options, Place, Programs, ensure_writes_continue};

const REGIONS: [&str; 3] = ["a", "b", "c"];
const READY_LIMIT: Duration = Duration::from_secs(90);
const COMMIT_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// How long all members must be healthy before the next crash or promotion.
const CALM: Duration = Duration::from_millis(700);

/// The ring, its databases and their clients.
pub(super) struct Scene {
    ring: Cluster,
    databases: Databases,
    accounts: Accounts,
    place: Place,
    heartbeat_ms: u64,
    stop: Arc<AtomicBool>,
}

impl Scene {
    /// Starts the ring, and waits until it commits.
    pub(super) fn set(
        options: &Options,
        programs: &Programs,
        place: Place,
        heartbeat_ms: u64,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let databases = Databases::new(options, programs);
        let mut databases_of_members = Vec::new();
        for (server_id, _) in (1..).zip(REGIONS) {
            databases_of_members.push(databases.of_member(server_id)?);
        }
        let cluster = ClusterOptions {
            distance: Some((options.inside(), options.across())),
            ..ClusterOptions::of(layout(place, options.members, databases_of_members))
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
            place,
            heartbeat_ms,
            stop,
        };
        scene.lose(options.loss_percent / 100.0);
        scene.say("starting the members");
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

    /// Prints a progress message.
    pub(super) fn say(&self, what: &str) {
        let (place, heartbeat) = (self.place, self.heartbeat_ms);
        eprintln!("compare: {place:?}, heartbeat {heartbeat} ms: {what}");
    }

    pub(super) fn name(&self, index: usize) -> &str {
        self.ring.name(index)
    }

    /// Returns a database member other than `leader`; `number` selects which.
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

    /// Kills a member and its mysqld. If the death is that of the host, first cuts the member's links.
    pub(super) fn kill(&mut self, index: usize, death: Death) -> Result<()> {
        if death == Death::HostVanished {
            // The links are cut before the kill. Otherwise the kernel would close the connections, and the other members would detect the
            // death.
            self.to_all_others(index, distance::Links::cut);
        }
        self.ring.kill_host(index)
    }

    /// Starts a killed member again.
    pub(super) fn bring_back(&mut self, index: usize) -> Result<()> {
        self.to_all_others(index, distance::Links::restore);
        self.start(index, false)
    }

    /// Calls `act` for the links between a member and each other member, in both directions.
    fn to_all_others(
        &self,
        index: usize,
        act: impl Fn(&mut distance::Links, distance::Place, distance::Place),
    ) {
        let own = distance::Place::member(index);
        let others = (0..self.ring.size()).filter(|other| *other != index);
        self.ring.links(|links| {
            for other in others.map(distance::Place::member) {
                act(links, own, other);
                act(links, other, own);
            }
        });
    }

    /// Makes all links between two members lose this share of the packets.
    fn lose(&self, loss: f64) {
        for index in 0..self.ring.size() {
            self.to_all_others(index, |links, from, to| links.set_loss(from, to, loss));
        }
    }

    /// Keeps every processor busy for `time`. Returns the number of leaders elected in that time.
    pub(super) fn soak(&mut self, time: Duration) -> Result<u64> {
        let leader = self.settled()?;
        let before = self.ring.term(leader)?;
        self.say("every processor is kept busy, and no leader may be elected");
        let busy = BusyProcessors::start();
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.look_after()?;
            thread::sleep(CALM);
        }
        drop(busy);
        let leader = self.settled()?;
        Ok(self.ring.term(leader)? - before)
    }

    /// Waits until the ring is healthy for `CALM`: a database member serves, its region is the quorum, all members have caught up, and
    /// commits continue. Returns the leader.
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

    /// Returns the leader if the ring is healthy. The error names what is wrong.
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
                return Err(self.failure("no member commits"));
            }
            thread::sleep(LOOK / 4);
        }
    }

    /// Waits for `CALM / 2`, and returns the commits acknowledged since `since`.
    pub(super) fn acknowledged_around(&mut self, since: Moment) -> Result<Vec<Acknowledged>> {
        thread::sleep(CALM / 2);
        self.accounts.look()?;
        self.accounts.forget(since);
        Ok(self.accounts.look()?.to_vec())
    }

    /// Returns the events in the members' logs since `since`, in the order of time.
    pub(super) fn events(&self, since: Moment) -> Vec<Event> {
        let of_member = |index| events(index, &self.ring.output(index), since);
        let mut all: Vec<Event> = (0..self.ring.size()).flat_map(of_member).collect();
        all.sort_by_key(|event| event.at);
        all
    }

    /// Runs the `witness` command line with the configuration of a member.
    pub(super) fn witness(&self, arguments: &[&str], config_of: usize) -> Result<Finished> {
        self.ring.cli_of(config_of, arguments)
    }

    /// Stops the writers, waits until all logs are equal, and searches for every acknowledged commit in every log.
    pub(super) fn end(mut self) -> Result<Verdict> {
        self.settled()?;
        self.say("comparing everything with what was acknowledged");
        self.databases.end(&self.ring)?;
        self.wait_until("everything is equal", |scene| {
            Ok(scene.ring.logs_are_level() && scene.ring.same_executed().is_ok())
        })?;
        let compared = self.databases.compare(&self.accounts, &self.ring);
        let compared = compared.map_err(|error| self.failure(&format!("{error:#}")))?;
        for index in 0..self.ring.size() {
            self.kill(index, Death::ProcessKilled)?;
        }
        let verdict = match compared {
            Some(verdict) => verdict,
            None => self.databases.verdict(&self.accounts, &self.ring)?,
        };
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

    /// Returns an error if the user has pressed Ctrl-C or a member has ended unexpectedly.
    fn look_after(&mut self) -> Result<()> {
        ensure_writes_continue(&self.stop)?;
        let ended = self.ring.look_after();
        ended.map_err(|ended| self.failure(&ended.to_string()))
    }

    fn failure(&mut self, what: &str) -> anyhow::Error {
        let words = self.ring.last_words();
        let folder = self.ring.keep_folder().display().to_string();
        anyhow::anyhow!("{what}\n{words}the members' files are kept in {folder}")
    }
}

/// Returns three database members and the witnesses. They are in one region, or distributed over three regions in turn.
fn layout(place: Place, members: u32, databases: Vec<MemberDatabase>) -> Vec<MemberOptions> {
    let region = |number: usize| match place {
        Place::Across => REGIONS[number % REGIONS.len()],
        Place::Inside => REGIONS[0],
    };
    let databases = databases.into_iter().enumerate().map(|(number, database)| {
        let name = format!("db-{}", REGIONS[number]);
        MemberOptions::new(name, region(number), database)
    });
    let witnesses = (REGIONS.len()..members as usize).map(|number| {
        let name = format!("witness-{number}");
        MemberOptions::new(name, region(number), MemberDatabase::Nothing)
    });
    databases.chain(witnesses).collect()
}

/// Threads that only compute, two for each processor, until this value is dropped.
struct BusyProcessors {
    end: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl BusyProcessors {
    fn start() -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let compute = |end: Arc<AtomicBool>| {
            move || {
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        let threads = (0..processors * 2).map(|_| thread::spawn(compute(end.clone())));
        Self {
            threads: threads.collect(),
            end,
        }
    }
}

impl Drop for BusyProcessors {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread only computes, so that it does not panic.
            let _ = thread.join();
        }
    }
}

fn account_of(ring: &Cluster, index: usize) -> PathBuf {
    ring.directory(index).join("acknowledged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_have_a_database_member_each_or_one_has_them_all() {
        let regions = |place, members| {
            let databases = vec![
                MemberDatabase::Nothing,
                MemberDatabase::Nothing,
                MemberDatabase::Nothing,
            ];
            let layout = layout(place, members, databases);
            let names = layout.iter().map(|member| member.name.as_str());
            assert!(names.take(3).eq(["db-a", "db-b", "db-c"]));
            let regions = layout.iter().map(|member| member.region.clone());
            regions.collect::<String>()
        };
        assert_eq!(regions(Place::Across, 9), "abcabcabc");
        assert_eq!(regions(Place::Across, 20), "abcabcabcabcabcabcab");
        assert_eq!(regions(Place::Inside, 5), "aaaaa");
    }
}
