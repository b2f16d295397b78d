//! The results of all faults: the number of faults of each kind, and how long the clients had no acknowledgements.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Percentiles;

use crate::fault::Kind;
use crate::ledger::Count;

/// One fault and its effect on the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) kind: Kind,
    /// True if the fault affected the primary, or resources that the primary needs.
    pub(crate) primary: bool,
    /// The time until a transaction that began later was acknowledged. It starts at the fault, or at the end of a fault that may stop
    /// commits.
    pub(crate) recovery: Duration,
    /// The longest time without an acknowledgement.
    pub(crate) pause: Duration,
}

#[derive(Clone, Debug, Serialize)]
struct Line {
    kind: String,
    primary: bool,
    cycles: usize,
    recovery_ms: Percentiles,
    pause_ms: Percentiles,
}

/// The results by kind of fault, as printed and as written to the figures.
pub(crate) struct Summary {
    lines: Vec<Line>,
    total: usize,
    count: Count,
    /// The results of [`crate::readers::Readers::counts`].
    reads: [u64; 3],
}

impl Summary {
    /// Summarizes the faults. `count` is the number of transactions; `reads` is the result of [`crate::readers::Readers::counts`].
    pub(crate) fn of(cycles: &[Cycle], count: Count, reads: [u64; 3]) -> Self {
        let mut groups: BTreeMap<(bool, Kind), Vec<Cycle>> = BTreeMap::new();
        for cycle in cycles {
            let group = groups.entry((!cycle.primary, cycle.kind)).or_default();
            group.push(*cycle);
        }
        let lines = groups.into_iter().filter_map(|((spared, kind), group)| {
            Some(Line {
                kind: name(kind),
                primary: !spared,
                cycles: group.len(),
                recovery_ms: Percentiles::of_ms(group.iter().map(|cycle| cycle.recovery))?,
                pause_ms: Percentiles::of_ms(group.iter().map(|cycle| cycle.pause))?,
            })
        });
        Self {
            lines: lines.collect(),
            total: cycles.len(),
            count,
            reads,
        }
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "                                   first commit, ms        longest pause, ms\n\
             fault            met      cycles      p50     p95     max      p50     p95     max\n",
        );
        for line in &self.lines {
            let met = match line.primary {
                true => "primary",
                false => "another",
            };
            let (first, pause) = (line.recovery_ms, line.pause_ms);
            let _ = writeln!(
                text,
                "{:<16} {met:<8} {:>6}  {:>7.0} {:>7.0} {:>7.0}  {:>7.0} {:>7.0} {:>7.0}",
                line.kind,
                line.cycles,
                first.p50,
                first.p95,
                first.max,
                pause.p50,
                pause.p95,
                pause.max
            );
        }
        let (count, [looks, fresh, kept_off]) = (self.count, self.reads);
        let _ = write!(
            text,
            "{} cycles; {} transactions acknowledged, {} refused, {} without an answer; {} reads of readers, {} of them at a primary and up to date; {} times they were kept off a primary that was cut off",
            self.total, count.acknowledged, count.failed, count.unknown, looks, fresh, kept_off
        );
        text
    }

    pub(crate) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        figures.set("cycles", self.total)?;
        figures.set("acknowledged", self.count.acknowledged)?;
        figures.set("refused", self.count.failed)?;
        figures.set("unknown", self.count.unknown)?;
        let [looks, fresh, kept_off] = self.reads;
        figures.set("looks_of_readers", looks)?;
        figures.set("looks_at_a_primary", fresh)?;
        figures.set("readers_kept_off", kept_off)?;
        figures.set("by_fault", &self.lines)
    }
}

pub(crate) fn name(kind: Kind) -> String {
    kind.to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

// The log file of a run: a line for each fault and each check, with the time since the start.

/// The log file of a run, and the display of the current activity.
#[derive(Debug)]
pub(crate) struct CycleLog {
    path: PathBuf,
    file: File,
    started: Instant,
}

impl CycleLog {
    /// Creates the log file. It replaces the file of an earlier run with the same seed.
    pub(crate) fn create(folder: &Path, seed: u64) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(format!("seed-{seed}.log"));
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path,
            file,
            started: Instant::now(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line, and displays it as the current activity.
    pub(crate) fn line(&mut self, what: &str) -> Result<()> {
        let at = self.started.elapsed().as_secs_f64();
        let line = format!("{at:8.2} {what}");
        writeln!(self.file, "{line}")?;
        eprintln!("{line}");
        Ok(())
    }
}

// Violations found by the continuous checks: the first ones in full, the rest as a number.

/// Number of violations that are stored in full.
const KEPT: usize = 20;

#[derive(Debug, Default)]
struct Found {
    first: Vec<String>,
    more: usize,
}

/// The violations found so far. All continuous checks share this record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<Found>>);

impl Findings {
    pub(crate) fn add(&self, what: String) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match found.first.len() < KEPT {
            true => found.first.push(what),
            false => found.more += 1,
        }
    }

    /// Returns all violations as text. `None`: there are none.
    pub(crate) fn words(&self) -> Option<String> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = match found.more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        (!found.first.is_empty()).then(|| format!("{}{more}", found.first.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_that_met_the_primary_have_a_line_of_their_own() {
        let cycle = |primary| Cycle {
            kind: Kind::KillHost,
            primary,
            recovery: Duration::from_millis(7),
            pause: Duration::from_millis(9),
        };
        let summary = Summary::of(&[cycle(false), cycle(true)], Count::default(), [3, 2, 1]);
        let table = summary.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[2].starts_with("kill-host        primary"), "{table}");
        assert!(lines[3].starts_with("kill-host        another"), "{table}");
    }
}

#[cfg(test)]
mod findings_tests {
    use super::*;

    #[test]
    fn many_findings_are_a_number() {
        let findings = Findings::default();
        assert_eq!(findings.words(), None);
        for number in 0..KEPT + 2 {
            findings.add(format!("f{number}"));
        }
        assert!(findings.words().unwrap().ends_with("f19; and 2 more"));
    }
}
