//! One run: starts the ring, and then injects one fault after another while clients write and readers read. After every few faults, and at
//! the end, checks everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use testkit::distance::check_needs;
use testkit::figures::{Figures, target_folder};
use testkit::stop_on_interrupt;

use crate::arguments::Arguments;
use crate::audit::audit;
use crate::clients::{Books, Clients};
use crate::fault::{Fault, Kind, NEED_LOOP_DEVICES, Script};
use crate::guide::Guide;
use crate::ledger::Ledger;
use crate::lists::History;
use crate::readers::Readers;
use crate::soak::{BETWEEN_LOOKS, CALMS_DOWN, Footprints};
use crate::stage::Stage;
use crate::strike::{cure, last, strike};
use crate::summary::{Cycle, CycleLog, Findings, Summary, name};

const READY_LIMIT: Duration = Duration::from_secs(120);
/// Time limit for a primary to accept writes, while there is a quorum.
const WRITES_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for all members to recover.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);
/// Interval between reports on a slow recovery.
const LONG: Duration = Duration::from_secs(10);
/// Time limit for an event that is scheduled each second to run at the primary.
const EVENT_LIMIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(25);
/// Number of faults between two checks of everything.
const CYCLES_PER_AUDIT: usize = 10;
/// The default duration.
const MINUTES: f64 = 10.0;

/// All parts of a run.
struct Campaign {
    // Rust drops the fields in this order, so that the readers and clients end first.
    readers: Readers,
    clients: Clients,
    _guide: Guide,
    stage: Stage,
    books: Books,
    stop: Arc<AtomicBool>,
    log: CycleLog,
    /// True if all members have recovered, and no fault was injected since.
    calm: bool,
    cycles: Vec<Cycle>,
    /// The members' resource use, recorded during a soak.
    footprints: Footprints,
    began: Instant,
}

/// Runs a campaign, prints the table and writes the figures.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    check_needs()?;
    let seed = match arguments.seed {
        0 => fastrand::u64(1..1 << 32),
        seed => seed,
    };
    let stop = stop_on_interrupt()?;
    let mut figures = Figures::new(
        &arguments.figures,
        &format!("cargo lab nemesis --seed {seed}"),
    )?;
    let mut home = tempfile::Builder::new()
        .prefix("nemesis-")
        .tempdir()
        .context("cannot make a folder for the ring")?;
    let mut log = CycleLog::create(&target_folder().join("nemesis"), seed)?;
    log.line(&format!(
        "seed {seed}: nine members and three mysqlds in {}",
        home.path().display()
    ))?;
    let stage = Stage::set(arguments, home.path())?;
    let log_path = log.path().to_owned();
    let done = Campaign::open(stage, stop, log).and_then(|mut campaign| {
        let done = campaign.go_through(arguments, seed);
        campaign.close(done)
    });
    match done {
        Ok(summary) => {
            println!("{}", summary.table());
            summary.put_into(&mut figures)?;
            figures.set("seed", seed)?;
            figures.set("inside_one_way_ms", arguments.inside_ms)?;
            figures.set("across_one_way_ms", arguments.across_ms)?;
            println!("seed {seed}: nothing lost, nothing doubled, nothing diverged");
            println!("log: {}", log_path.display());
            println!("figures: {}", figures.write()?.display());
            Ok(())
        }
        // The user interrupted the run, so that there is no failure to investigate and the files can be deleted.
        Err(error) if error.is::<Interrupted>() => Err(error),
        Err(error) => {
            home.disable_cleanup(true);
            Err(error.context(format!(
                "seed {seed}; the faults are in {}, all files in {}",
                log_path.display(),
                home.path().display()
            )))
        }
    }
}

impl Campaign {
    /// Starts the ring, and waits until a client's transaction is acknowledged.
    fn open(mut stage: Stage, stop: Arc<AtomicBool>, log: CycleLog) -> Result<Self> {
        stage.ring.bootstrap()?;
        let findings = Findings::default();
        let guide = Guide::start(stage.places(), &findings);
        let direction = guide.direction();
        let deadline = Instant::now() + READY_LIMIT;
        // Waits for all members, not only for the first primary. On a busy machine the primary's mysqld may start so slowly that its member
        // transfers the leadership.
        let primary = loop {
            ensure_writes_continue(&stop)?;
            stage
                .ring
                .look_after()
                .with_context(|| stage.ring.words())?;
            match stage.standing() {
                Ok(primary) if direction.primary_index().is_some() => break primary,
                Err(why) if Instant::now() > deadline => bail!(
                    "the ring is not complete after {READY_LIMIT:?}: {why:#}\n{}",
                    stage.ring.words()
                ),
                _ => thread::sleep(LOOK),
            }
        };
        stage.furnish(primary)?;
        let books = Books {
            direction,
            ledger: Ledger::default(),
            history: History::default(),
            findings,
        };
        let mut campaign = Self {
            readers: Readers::start(stage.places(), books.clone())?,
            clients: Clients::start(books.clone())?,
            _guide: guide,
            stage,
            books,
            stop,
            log,
            calm: false,
            cycles: Vec::new(),
            footprints: Footprints::default(),
            began: Instant::now(),
        };
        campaign.settle()?;
        Ok(campaign)
    }

    /// Injects all faults, and checks everything after every few faults and at the end.
    fn go_through(&mut self, arguments: &Arguments, seed: u64) -> Result<()> {
        let minutes = match (arguments.minutes, arguments.cycles) {
            (None, None) => Some(MINUTES),
            (minutes, _) => minutes,
        };
        let until = minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0));
        let over = |number: usize| {
            until.is_some_and(|until| Instant::now() >= until)
                || arguments.cycles.is_some_and(|most| number >= most as usize)
        };
        let kinds = self.kinds(&arguments.only)?;
        let longest_stop = Duration::from_secs_f64(arguments.longest_stop);
        for (number, fault) in Script::new(seed, kinds, longest_stop).enumerate() {
            if over(number) {
                break;
            }
            let next = arguments
                .every
                .map(|every| Instant::now() + Duration::from_secs_f64(every));
            self.cycle(number + 1, &fault)?;
            if let Some(next) = next {
                self.rest_until(next)?;
            }
            if (number + 1).is_multiple_of(CYCLES_PER_AUDIT) {
                self.audit()?;
            }
        }
        self.audit()?;
        self.judge_footprints()
    }

    /// Returns the requested kinds of faults, or all. Reports and leaves out the kinds that this machine cannot run.
    fn kinds(&mut self, only: &[Kind]) -> Result<Vec<Kind>> {
        let mut kinds = match only {
            [] => Kind::value_variants().to_vec(),
            only => only.to_vec(),
        };
        if self.stage.previous.is_none() {
            ensure!(
                !only.contains(&Kind::ChangeVersion),
                "change-version needs another build of the members' program: --previous"
            );
            kinds.retain(|kind| *kind != Kind::ChangeVersion);
        }
        if let Some(why) = &self.stage.without_loops {
            let out = NEED_LOOP_DEVICES.map(name).join(", ");
            self.log
                .line(&format!("LEFT OUT on this machine: {out}: {why}"))?;
            kinds.retain(|kind| !NEED_LOOP_DEVICES.contains(kind));
        }
        ensure!(!kinds.is_empty(), "no fault is left that could be done");
        Ok(kinds)
    }

    fn cycle(&mut self, number: usize, fault: &Fault) -> Result<()> {
        let doing = format!("cycle {number}: {}", name(fault.kind));
        self.books.ledger.forget_times();
        let primary = self.books.direction.primary_index();
        let primary = primary.and_then(|index| self.stage.ring.databases().get(index).copied());
        let mut struck =
            strike(&mut self.stage, fault, primary, self.calm).with_context(|| doing.clone())?;
        let (calm, words) = (std::mem::take(&mut self.calm), struck.words.clone());
        let began = struck.began;
        let met = match struck.primary {
            true => ", the primary",
            false => "",
        };
        self.log.line(&format!(
            "{doing} {words}{met}{}",
            if calm { "" } else { " (unsettled)" }
        ))?;
        // Readers are checked only if the ring was calm. Otherwise the member or its mysqld may still be starting or changing its role.
        let databases = self.stage.ring.databases();
        let place_of = |member: usize| databases.iter().position(|index| *index == member);
        if let Some(place) = struck.cut_off.filter(|_| calm).and_then(place_of) {
            self.readers.cut_off(place);
        }
        let mut recovery = None;
        if struck.quorum_stays {
            recovery = Some(
                self.writes_after(began)
                    .with_context(|| format!("{doing} {words}: while it lasted"))?,
            );
        }
        last(began, fault, || ensure_writes_continue(&self.stop))?;
        self.readers.restored();
        if let Some(place) = struck.goes_back.and_then(place_of) {
            self.readers.goes_back(place);
        }
        cure(&mut self.stage, &mut struck).with_context(|| format!("{doing} {words}"))?;
        let cured = Instant::now();
        let after = self
            .writes_after(cured)
            .with_context(|| format!("{doing} {words}: after it was over"))?;
        let recovery = recovery.unwrap_or(after);
        let pause = self.books.ledger.longest_pause(began, Instant::now());
        if fault.settle {
            self.settle().with_context(|| format!("{doing} {words}"))?;
        }
        let settled = match fault.settle {
            true => format!(
                ", recovered {} ms after it was over",
                cured.elapsed().as_millis()
            ),
            false => String::new(),
        };
        self.log.line(&format!(
            "  first commit {} ms, longest pause {} ms{settled}",
            recovery.as_millis(),
            pause.as_millis()
        ))?;
        self.cycles.push(Cycle {
            kind: fault.kind,
            primary: struck.primary,
            recovery,
            pause,
        });
        self.objections()
    }

    /// Waits until a transaction that began after `moment` is acknowledged. Returns the time from `moment` to the acknowledgement.
    fn writes_after(&self, moment: Instant) -> Result<Duration> {
        loop {
            ensure_writes_continue(&self.stop)?;
            self.clients.look_after()?;
            if let Some(first) = self.books.ledger.first_begun_after(moment) {
                return Ok(first.duration_since(moment));
            }
            ensure!(
                moment.elapsed() < WRITES_LIMIT,
                "no member accepts writes after {WRITES_LIMIT:?}\n{}",
                self.stage.ring.words()
            );
            thread::sleep(LOOK);
        }
    }

    /// Waits until all members have recovered. Returns the primary.
    fn settle(&mut self) -> Result<usize> {
        let began = Instant::now();
        let mut told = None;
        loop {
            ensure_writes_continue(&self.stop)?;
            self.stage
                .ring
                .look_after()
                .with_context(|| self.stage.ring.words())?;
            let why = match self.stage.standing() {
                Ok(primary) => {
                    self.calm = true;
                    return Ok(primary);
                }
                Err(why) => why,
            };
            if told.unwrap_or(began).elapsed() > LONG {
                self.log
                    .line(&format!("  not everybody has recovered yet: {why:#}"))?;
                told = Some(Instant::now());
            }
            ensure!(
                began.elapsed() < SETTLE_LIMIT,
                "not everybody has recovered after {SETTLE_LIMIT:?}: {why:#}\n{}",
                self.stage.ring.words()
            );
            thread::sleep(LOOK * 8);
        }
    }

    /// Waits without faults until `next`. The leader must not change. Records the members' resource use.
    fn rest_until(&mut self, next: Instant) -> Result<()> {
        let primary = self.settle()?;
        let calm_from = Instant::now() + CALMS_DOWN;
        let mut led = None;
        while Instant::now() < next {
            ensure_writes_continue(&self.stop)?;
            let ring = &mut self.stage.ring;
            ring.look_after()?;
            self.footprints.look(ring, self.began.elapsed())?;
            if Instant::now() >= calm_from {
                let now = (ring.primary_now(), ring.term(primary)?);
                let before = *led.get_or_insert(now);
                ensure!(
                    before == now,
                    "the leadership moved although nothing had happened: primary and term were {before:?} and are {now:?}"
                );
            }
            let left = next.saturating_duration_since(Instant::now());
            thread::sleep(BETWEEN_LOOKS.min(left));
        }
        Ok(())
    }

    /// Returns an error if the members' resource use has grown.
    fn judge_footprints(&mut self) -> Result<()> {
        for (index, taken) in self.footprints.judged() {
            let name = self.stage.ring.name(index);
            self.log.line(&format!("{name} took {taken:?}"))?;
            if let Some(words) = taken.grew() {
                bail!("{name}: {words}");
            }
        }
        Ok(())
    }

    /// Pauses the clients and checks everything.
    fn audit(&mut self) -> Result<()> {
        let primary = self.settle()?;
        self.clients.rest()?;
        let began = Instant::now();
        self.stage
            .event_runs(primary, EVENT_LIMIT)
            .with_context(|| self.stage.ring.words())?;
        // The scheduled event would write during the check.
        self.let_event_run(false)?;
        audit(&mut self.stage, &self.books.ledger, &self.books.history)?;
        self.let_event_run(true)?;
        self.clients.go_on();
        self.objections()?;
        let count = self.books.ledger.count();
        self.log.line(&format!(
            "everything agrees: {count:?}, {} transactions over lists and reads of them have an order, compared in {} ms",
            self.books.history.len(),
            began.elapsed().as_millis()
        ))
    }

    /// Enables or disables the scheduled event at the primary. Tries three times, because the leadership may still move after all members
    /// have recovered.
    fn let_event_run(&mut self, runs: bool) -> Result<()> {
        let mut tried = 0;
        loop {
            let primary = self.settle()?;
            let done = self.stage.let_event_run(primary, runs);
            tried += 1;
            if done.is_ok() || tried == 3 {
                return done;
            }
        }
    }

    fn objections(&self) -> Result<()> {
        let words = self.books.findings.words();
        words.map_or(Ok(()), |words| Err(anyhow!(words)))
    }

    /// Ends the run. After a failure, keeps the files for an investigation.
    fn close(mut self, done: Result<()>) -> Result<Summary> {
        let count = self.books.ledger.count();
        let summary = Summary::of(&self.cycles, count, self.readers.counts());
        if let Err(error) = &done {
            // An error in writing the log file is ignored, so that the run's error is reported.
            let _ = self.log.line(&format!("FAILED {error:#}"));
            self.stage.keep_disks();
        }
        done.map(|()| summary)
    }
}

/// The user pressed Ctrl-C.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

fn ensure_writes_continue(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Interrupted.into()),
        false => Ok(()),
    }
}
