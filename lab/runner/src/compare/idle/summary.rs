//! Computes the printed table and the figures from two samples of all processes. Pure.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;

use crate::compare::idle::footprint::Footprint;
use crate::compare::idle::rings::Leader;
use crate::compare::processor_time::CoresUsed;
use crate::compare::spread as spread_of;

/// The resource use of all leaders or of all followers, over all rings.
#[derive(Clone, Debug, Serialize)]
struct Kind {
    processes: usize,
    rss_mib: Spread,
    /// The anonymous part of the resident memory, without pages of files.
    own_mib: Spread,
    /// The proportional memory: shared pages are divided among the processes that share them.
    pss_mib: Spread,
    core_percent: Spread,
    wakes_per_second: Spread,
    threads: Spread,
}

/// The resource use of leaders and of followers.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    followers: Option<Kind>,
    leaders: Option<Kind>,
    /// The memory of all processes together, in mebibytes. A page that several processes share counts once.
    together_mib: f64,
}

impl Summary {
    /// Summarizes two samples, taken `seconds` apart.
    pub(super) fn of(
        leaders: &[Leader],
        before: &[Vec<Footprint>],
        after: &[Vec<Footprint>],
        seconds: u64,
    ) -> Self {
        let (mut led, mut follow) = (Vec::new(), Vec::new());
        for (leader, (before, after)) in leaders.iter().zip(before.iter().zip(after)) {
            for (member, pair) in before.iter().zip(after).enumerate() {
                match member == leader.member {
                    true => led.push(pair),
                    false => follow.push(pair),
                }
            }
        }
        let all = after.iter().flatten();
        Self {
            followers: kind(&follow, seconds),
            leaders: kind(&led, seconds),
            together_mib: mebibytes(all.map(|one| one.memory.proportional).sum()),
        }
    }

    /// Returns the table for the terminal: medians, and for processor time also the range.
    pub(super) fn table(&self, cores: Option<CoresUsed>) -> String {
        let mut text = format!(
            "{:<11}{:>10}{:>10}{:>12}{:>14}{:>14}  {:<16}{:>9}{:>9}\n",
            "members",
            "processes",
            "RSS MiB",
            "of it own",
            "shared once",
            "% of a core",
            "[range]",
            "wakes/s",
            "threads"
        );
        for (name, kind) in [("followers", &self.followers), ("leaders", &self.leaders)] {
            let Some(kind) = kind else { continue };
            let core = kind.core_percent;
            let _ = writeln!(
                text,
                "{name:<11}{:>10}{:>10.1}{:>12.1}{:>14.1}{:>14.3}  {:<16}{:>9.1}{:>9.0}",
                kind.processes,
                kind.rss_mib.median,
                kind.own_mib.median,
                kind.pss_mib.median,
                core.median,
                format!("[{:.3} {:.3}]", core.min, core.max),
                kind.wakes_per_second.median,
                kind.threads.median,
            );
        }
        let _ = write!(text, "all together: {:.0} MiB", self.together_mib);
        if let Some(cores) = cores {
            let (ours, others) = (cores.ours, cores.others);
            let _ = write!(
                text,
                ", {ours:.2} cores; others on this machine used {others:.2} cores in the meantime"
            );
        }
        text.push('\n');
        text
    }

    pub(super) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        if let Some(followers) = &self.followers {
            figures.set("witness_rss_mib", followers.rss_mib.median)?;
            figures.set("witness_core_percent", followers.core_percent.median)?;
        }
        if let Some(leaders) = &self.leaders {
            figures.set("leader_rss_mib", leaders.rss_mib.median)?;
            figures.set("leader_core_percent", leaders.core_percent.median)?;
        }
        figures.set("all_together_mib", self.together_mib)?;
        figures.set("followers", &self.followers)?;
        figures.set("leaders", &self.leaders)
    }
}

fn kind(looks: &[(&Footprint, &Footprint)], seconds: u64) -> Option<Kind> {
    let spread = |of: &dyn Fn(&Footprint, &Footprint) -> f64| {
        spread_of(looks.iter().map(|(before, after)| of(before, after)))
    };
    let seconds = seconds as f64;
    Some(Kind {
        processes: looks.len(),
        rss_mib: spread(&|_, after| mebibytes(after.memory.resident))?,
        own_mib: spread(&|_, after| mebibytes(after.memory.own))?,
        pss_mib: spread(&|_, after| mebibytes(after.memory.proportional))?,
        core_percent: spread(&|before, after| {
            after.since(before).ran_nanos as f64 / 1e7 / seconds
        })?,
        wakes_per_second: spread(&|before, after| after.since(before).waits as f64 / seconds)?,
        threads: spread(&|_, after| after.threads() as f64)?,
    })
}

fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::idle::footprint::Memory;

    #[test]
    fn leaders_and_followers_are_distinguished() {
        let memory = |mib: u64| Memory {
            resident: mib * 1024,
            own: mib * 512,
            proportional: mib * 256,
        };
        let before = || Footprint::made(memory(1), 0, 0);
        // The activity in ten seconds.
        let follower = || Footprint::made(memory(20), 10_000_000, 50);
        let leader = || Footprint::made(memory(30), 100_000_000, 100);
        let leaders = [0, 1].map(|member| Leader { member, term: 1 });
        let summary = Summary::of(
            &leaders,
            &[vec![before(), before()], vec![before(), before()]],
            &[vec![leader(), follower()], vec![follower(), leader()]],
            10,
        );
        let (followers, leaders) = (
            summary.followers.clone().unwrap(),
            summary.leaders.clone().unwrap(),
        );
        assert_eq!((followers.processes, leaders.processes), (2, 2));
        assert_eq!(
            (followers.rss_mib.median, leaders.rss_mib.max),
            (20.0, 30.0)
        );
        assert_eq!(
            (followers.own_mib.median, followers.pss_mib.median),
            (10.0, 5.0)
        );
        assert!((followers.core_percent.median - 0.1).abs() < 1e-9);
        assert!((leaders.core_percent.median - 1.0).abs() < 1e-9);
        assert_eq!(leaders.wakes_per_second.median, 10.0);
        assert_eq!(summary.together_mib, 25.0);
        let table = summary.table(None);
        assert!(
            table.contains("followers") && table.contains("all together: 25 MiB"),
            "{table}"
        );
    }
}
