//! What came of all the faults: how many of each kind, and for how long nothing was acknowledged.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Percentiles;

use crate::fault::Kind;
use crate::ledger::Count;

/// One fault and what it did to the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) kind: Kind,
    /// Whether it met the primary, or what it needs.
    pub(crate) primary: bool,
    /// From the fault, or from the end of one during which nobody need write, to the first acknowledgement of a transaction that was
    /// begun afterwards.
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

/// See the module.
pub(crate) struct Summary {
    lines: Vec<Line>,
    total: usize,
    count: Count,
    looks: u64,
    fresh: u64,
    kept_off: u64,
}

impl Summary {
    /// `looks`: how many looks readers had; `fresh`: of how many it is known that they had to be up to date, and were; `kept_off`:
    /// how often readers were turned away by a primary that was cut off.
    pub(crate) fn of(
        cycles: &[Cycle],
        count: Count,
        looks: u64,
        fresh: u64,
        kept_off: u64,
    ) -> Self {
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
            looks,
            fresh,
            kept_off,
        }
    }

    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<16} {:<8} {:>6}  {:>23}  {:>23}\n{:<16} {:<8} {:>6}  {:>7} {:>7} {:>7}  {:>7} {:>7} {:>7}\n",
            "",
            "",
            "",
            "first commit, ms",
            "longest pause, ms",
            "fault",
            "met",
            "cycles",
            "p50",
            "p95",
            "max",
            "p50",
            "p95",
            "max"
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
        let count = self.count;
        let _ = write!(
            text,
            "{} cycles; {} transactions acknowledged, {} refused, {} without an answer; {} looks of readers, {} of them at a primary and up to date; {} times they were kept off a primary that was cut off",
            self.total,
            count.acknowledged,
            count.failed,
            count.unknown,
            self.looks,
            self.fresh,
            self.kept_off
        );
        text
    }

    pub(crate) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        figures.set("cycles", self.total)?;
        figures.set("acknowledged", self.count.acknowledged)?;
        figures.set("refused", self.count.failed)?;
        figures.set("unknown", self.count.unknown)?;
        figures.set("looks_of_readers", self.looks)?;
        figures.set("looks_at_a_primary", self.fresh)?;
        figures.set("readers_kept_off", self.kept_off)?;
        figures.set("by_fault", &self.lines)
    }
}

pub(crate) fn name(kind: Kind) -> String {
    kind.to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
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
        let summary = Summary::of(&[cycle(false), cycle(true)], Count::default(), 3, 2, 1);
        let table = summary.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[2].starts_with("kill-host        primary"), "{table}");
        assert!(lines[3].starts_with("kill-host        another"), "{table}");
    }
}
