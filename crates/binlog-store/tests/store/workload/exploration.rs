//! Runs a script many times, each time with a fault at another call to the disk or the hard state. Compares the resulting log with the
//! model.

use binlog_store::StoreOptions;
use testkit::disk::{CallFault, FaultyDisk, Survival};

use super::{Model, Step, log_files, open_with, read_all, run};

/// The extent of an exploration.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Explored {
    /// Calls at which a fault was injected.
    pub(crate) calls: u64,
    /// Outcomes with a log that was opened and checked.
    pub(crate) outcomes: u64,
    /// Outcomes of a second power cut, while the log was being opened after the first one.
    pub(crate) nested: u64,
}

/// The fault that is injected at one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// The power is cut after the call.
    PowerCut,
    /// The call fails, and the process is restarted on the running machine.
    Fault(CallFault),
}

/// A script and the way to run it.
pub(crate) struct Exploration {
    pub(crate) steps: Vec<Step>,
    pub(crate) options: StoreOptions,
    pub(crate) disturbance: Disturbance,
    /// Whether the disk, once the log is created, reports syncs that it has not made.
    pub(crate) lying_disk: bool,
    /// Number of seeded outcomes for each call, in addition to "nothing survives" and "everything survives".
    pub(crate) seeds: u64,
    /// For one in this many calls, the next start is tested, too: the power is cut after each of its calls. Zero for never.
    pub(crate) nested_every: u64,
}

impl Exploration {
    /// Runs the script on a disk until the script ends or the power is cut.
    fn run_script(&self, disk: &FaultyDisk) -> (Model, usize) {
        let mut model = Model::default();
        let Ok((mut store, _)) = open_with(disk, self.options.clone()) else {
            return (model, 0);
        };
        disk.lie_about_sync(self.lying_disk);
        let done = run(&mut store, &self.steps, &mut model);
        (model, done)
    }

    /// Explores all crash points; the error describes the first one with a loss.
    pub(crate) fn go(&self) -> Result<Explored, String> {
        let undisturbed = FaultyDisk::new();
        let (model, done) = self.run_script(&undisturbed);
        if done < self.steps.len() {
            return Err(format!(
                "the script itself fails in step {done}: {:?}",
                self.steps[done]
            ));
        }
        let calls = undisturbed.calls();
        let wanted_files = log_files(&undisturbed);
        self.start_and_check(&undisturbed, &model)?;

        let mut explored = Explored::default();
        for call in 0..calls {
            let disk = FaultyDisk::new();
            match self.disturbance {
                Disturbance::PowerCut => disk.cut_power_after(call),
                Disturbance::Fault(fault) => disk.fail_call(call + 1, fault),
            }
            let (model, done) = self.run_script(&disk);
            explored.calls += 1;
            for ending in self.endings(call) {
                let disk = disk.fork();
                match ending {
                    Some(survival) => disk.power_cycle(survival),
                    None => disk.restart_process(),
                }
                let nested = self.nested_every > 0 && call.is_multiple_of(self.nested_every);
                self.check_outcome(&disk, &model, done, &wanted_files, nested, &mut explored)
                    .map_err(|what| {
                        let disturbance = self.disturbance;
                        format!(
                            "{disturbance:?} at call {call} in step {done}, then {ending:?}: {what}"
                        )
                    })?;
                explored.outcomes += 1;
            }
        }
        Ok(explored)
    }

    /// How the member restarts: only its process, or the whole machine.
    fn endings(&self, call: u64) -> Vec<Option<Survival>> {
        let seeded = (0..self.seeds).map(|seed| Some(Survival::Seeded(call * self.seeds + seed)));
        let process = (self.disturbance != Disturbance::PowerCut).then_some(None);
        let extremes = [Some(Survival::Nothing), Some(Survival::Everything)];
        process.into_iter().chain(extremes).chain(seeded).collect()
    }

    fn check_outcome(
        &self,
        disk: &FaultyDisk,
        model: &Model,
        done: usize,
        wanted: &std::collections::BTreeMap<String, Vec<u8>>,
        nested: bool,
        explored: &mut Explored,
    ) -> Result<(), String> {
        if nested {
            self.cut_during_start(disk, model, explored)?;
        }
        let first_look = self.start_and_check(disk, model)?;
        disk.power_cycle(Survival::Nothing);
        if first_look != self.start_and_check(disk, model)? {
            return Err("the second start differs from the first".to_owned());
        }
        self.go_on(disk, model, done)?;
        let files = log_files(disk);
        if files.keys().ne(wanted.keys()) {
            return Err(format!(
                "after going on there are {:?}, without the crash {:?}",
                files.keys(),
                wanted.keys()
            ));
        }
        match files.iter().find(|(name, bytes)| wanted[*name] != **bytes) {
            Some((name, _)) => Err(format!(
                "after going on {name} has other bytes than without the crash"
            )),
            None => Ok(()),
        }
    }

    /// Opens the log and compares it with the model; returns its content.
    fn start_and_check(
        &self,
        disk: &FaultyDisk,
        model: &Model,
    ) -> Result<impl PartialEq + use<>, String> {
        let (store, report) =
            open_with(disk, self.options.clone()).map_err(|error| format!("opening: {error}"))?;
        model
            .check(&store)
            .map_err(|what| format!("{what} ({report})"))?;
        let look = (read_all(&store).unwrap(), store.gtid_set(), store.bounds());
        drop(store);
        Ok((look, log_files(disk)))
    }

    /// Cuts the power after every call of the next start.
    fn cut_during_start(
        &self,
        disk: &FaultyDisk,
        model: &Model,
        explored: &mut Explored,
    ) -> Result<(), String> {
        let whole = disk.fork();
        let before = whole.calls();
        self.start_and_check(&whole, model)?;
        for cut in before..whole.calls() {
            for survival in [
                Survival::Nothing,
                Survival::Everything,
                Survival::Seeded(cut),
            ] {
                let disk = disk.fork();
                disk.cut_power_after(cut);
                drop(open_with(&disk, self.options.clone()));
                disk.power_cycle(survival);
                self.start_and_check(&disk, model).map_err(|what| {
                    format!(
                        "and again {} calls into the start, {survival:?}: {what}",
                        cut - before
                    )
                })?;
                explored.nested += 1;
            }
        }
        Ok(())
    }

    /// Performs the rest of the script; pending requests are repeated.
    fn go_on(&self, disk: &FaultyDisk, model: &Model, done: usize) -> Result<(), String> {
        let (mut store, _) =
            open_with(disk, self.options.clone()).map_err(|error| format!("opening: {error}"))?;
        let mut model = model.clone();
        let mut rest = self.steps[done..].to_vec();
        if let (Some(Step::Append(entries)), Some(first)) =
            (model.under_way.clone(), rest.first_mut())
        {
            // The log may already have a part of the pending append.
            let last = read_all(&store)
                .unwrap()
                .last()
                .map(|entry| entry.log_id.index);
            let (there, missing): (Vec<_>, Vec<_>) = entries
                .into_iter()
                .partition(|entry| Some(entry.log_id.index) <= last);
            model.acknowledge(&Step::Append(there));
            *first = Step::Append(missing);
        }
        model.under_way = None;
        let finished = run(&mut store, &rest, &mut model);
        if finished < rest.len() {
            return Err(format!(
                "going on fails at {:?}: {:?}",
                rest[finished],
                store.failure()
            ));
        }
        model
            .check(&store)
            .map_err(|what| format!("after going on: {what}"))
    }
}
