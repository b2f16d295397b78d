//! Computes percentiles from single failovers and promotions, and compares them with Table 2 of the MyRaft paper. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;
use testkit::figures::Figures;
use testkit::statistics::Percentiles;

use crate::compare::failover::crash::CrashTimes;
use crate::compare::failover::databases::Verdict;
use crate::compare::failover::options::{Death, Place};
use crate::compare::failover::promotion::Promotion;
use crate::compare::set_all;

/// All measurements with one distribution of the members and one heartbeat interval.
pub(super) struct Measured {
    pub(super) place: Place,
    pub(super) heartbeat_ms: u64,
    pub(super) crashes: Vec<(Death, CrashTimes)>,
    /// Number of leaders elected while the processors were busy, if measured.
    pub(super) elected_in_soak: Option<u64>,
    pub(super) promotions: Vec<Promotion>,
    pub(super) verdict: Verdict,
}

/// Failovers in Table 2 of MyRaft: mean, p50, p95, p99 in milliseconds.
const PAPER_FAILOVER_MS: [f64; 4] = [2389.0, 1887.0, 5030.0, 6632.0];
const PAPER_PROMOTION_MS: [f64; 4] = [218.0, 202.0, 322.0, 357.0];

const DEATHS: [Death; 2] = [Death::ProcessKilled, Death::HostVanished];

type ByPhase = BTreeMap<String, Percentiles>;
type ByTimer<T> = BTreeMap<Place, BTreeMap<String, T>>;

/// All percentiles, by setting in the order of measurement.
pub(super) struct Summary {
    settings: Vec<Setting>,
    /// The failovers of Group Replication, by setting.
    peers: ByPhase,
}

struct Setting {
    place: Place,
    heartbeat_ms: u64,
    failovers: BTreeMap<Death, Failovers>,
    elected_in_soak: Option<u64>,
    stall: Option<Percentiles>,
    total: Option<Percentiles>,
    promotion_phases: ByPhase,
    /// The errors of refused promotions.
    refused: Vec<String>,
    acknowledged: u64,
    lost: usize,
    trimmed: Option<usize>,
}

/// The percentiles of failovers after one kind of death.
struct Failovers {
    total: Percentiles,
    phases: ByPhase,
}

impl Failovers {
    fn of<'a>(crashes: impl Iterator<Item = &'a CrashTimes> + Clone) -> Option<Self> {
        Some(Self {
            total: Percentiles::of(crashes.clone().map(|crash| crash.total_ms))?,
            phases: by_phase(crashes.map(|crash| crash.phases.clone())),
        })
    }
}

impl Summary {
    pub(super) fn of(measured: &[Measured], peers: &BTreeMap<String, Vec<f64>>) -> Self {
        let settings = measured.iter().map(|one| {
            let failovers = DEATHS.into_iter().filter_map(|death| {
                let crashes = one.crashes.iter().filter(move |(by, _)| *by == death);
                Some((death, Failovers::of(crashes.map(|(_, times)| times))?))
            });
            let promotions = one
                .promotions
                .iter()
                .filter_map(|promotion| match promotion {
                    Promotion::Done(times) => Some(times),
                    Promotion::Refused(_) => None,
                });
            Setting {
                place: one.place,
                heartbeat_ms: one.heartbeat_ms,
                failovers: failovers.collect(),
                elected_in_soak: one.elected_in_soak,
                stall: Percentiles::of(promotions.clone().map(|one| one.stall_ms)),
                total: Percentiles::of(promotions.clone().map(|one| one.total_ms)),
                promotion_phases: by_phase(promotions.map(|one| one.phases.clone())),
                refused: refusals(&one.promotions),
                acknowledged: one.verdict.acknowledged,
                lost: one.verdict.lost.len(),
                trimmed: one.verdict.trimmed,
            }
        });
        Self {
            settings: settings.collect(),
            peers: peers
                .iter()
                .filter_map(|(name, times)| {
                    Some((name.clone(), Percentiles::of(times.iter().copied())?))
                })
                .collect(),
        }
    }

    /// Returns the tables for the terminal.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        line(
            &mut text,
            "ms",
            ["mean", "p50", "p95", "p99", "max"].map(str::to_owned),
        );
        paper(&mut text, "failover, [MyRaft] Table 2", PAPER_FAILOVER_MS);
        for setting in &self.settings {
            for (death, failovers) in &setting.failovers {
                let name = format!("{death:?}, {setting}");
                row(&mut text, &name, Some(failovers.total));
                for (phase, times) in &failovers.phases {
                    row(&mut text, &format!("    {phase}"), Some(*times));
                }
            }
        }
        for (setting, times) in &self.peers {
            row(&mut text, &format!("failover, {setting}"), Some(*times));
        }
        paper(&mut text, "promotion, [MyRaft] Table 2", PAPER_PROMOTION_MS);
        for setting in &self.settings {
            let name = format!("promotion, write stall, {setting}");
            row(&mut text, &name, setting.stall);
            row(&mut text, "    the whole command", setting.total);
            for (phase, times) in &setting.promotion_phases {
                row(&mut text, &format!("    {phase}"), Some(*times));
            }
        }
        for setting in &self.settings {
            let _ = writeln!(
                text,
                "{setting}: {} commits were acknowledged, {} of them lost; {} promotions were refused",
                setting.acknowledged,
                setting.lost,
                setting.refused.len()
            );
            if let Some(elected) = setting.elected_in_soak {
                let _ = writeln!(
                    text,
                    "    with busy processors and nothing done to the ring, {elected} leaders were elected"
                );
            }
            if let Some(trimmed) = setting.trimmed {
                let deaths = setting.failovers.values();
                let deaths: usize = deaths.map(|one| one.total.samples).sum();
                let _ = writeln!(
                    text,
                    "    after {deaths} deaths each mysqld came back by itself, equal to the others; {trimmed} times an end was cut off its binlog"
                );
            }
        }
        text
    }

    /// Writes the percentiles into the figures.
    pub(super) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        let named = |[mean, p50, p95, p99]: [f64; 4]| json!({ "mean": mean, "p50": p50, "p95": p95, "p99": p99 });
        let entries = json!({
            "failover_ms": self.by_death(|one| one.total),
            "failover_phases_ms": self.by_death(|one| one.phases.clone()),
            "elected_in_soak": self.by_timer(|one| one.elected_in_soak),
            "peers_failover_ms": self.peers,
            "promotion_ms": self.by_timer(|one| one.stall),
            "promotion_whole_command_ms": self.by_timer(|one| one.total),
            "promotion_phases_ms": self.by_timer(|one| one.promotion_phases.clone()),
            "acknowledged_commits": self.by_timer(|one| one.acknowledged),
            "lost_commits": self.by_timer(|one| one.lost),
            "refused_promotions": self.by_timer(|one| one.refused.clone()),
            "trimmed_binlogs": self.by_timer(|one| one.trimmed),
            "myraft_table_2_failover_ms": named(PAPER_FAILOVER_MS),
            "myraft_table_2_promotion_ms": named(PAPER_PROMOTION_MS),
        });
        set_all(figures, &entries)
    }

    /// Returns a value of each setting, by place and heartbeat.
    fn by_timer<T>(&self, value: impl Fn(&Setting) -> T) -> ByTimer<T> {
        let mut values = ByTimer::new();
        for setting in &self.settings {
            let at_place = values.entry(setting.place).or_default();
            let heartbeat = format!("heartbeat_{}_ms", setting.heartbeat_ms);
            at_place.insert(heartbeat, value(setting));
        }
        values
    }

    /// Returns a value of the failovers, by death, place and heartbeat.
    fn by_death<T>(&self, value: impl Fn(&Failovers) -> T) -> BTreeMap<Death, ByTimer<Option<T>>> {
        let of = |death| self.by_timer(|one| one.failovers.get(&death).map(&value));
        DEATHS.into_iter().map(|death| (death, of(death))).collect()
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, heartbeat {} ms", self.place, self.heartbeat_ms)
    }
}

fn refusals(promotions: &[Promotion]) -> Vec<String> {
    let refused = promotions.iter().filter_map(|promotion| match promotion {
        Promotion::Refused(why) => Some(why.clone()),
        Promotion::Done(_) => None,
    });
    refused.collect()
}

fn by_phase(runs: impl Iterator<Item = BTreeMap<String, f64>>) -> ByPhase {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (phase, time) in runs.flatten() {
        values.entry(phase).or_default().push(time);
    }
    let phases = values.into_iter();
    phases
        .filter_map(|(phase, times)| Some((phase, Percentiles::of(times)?)))
        .collect()
}

fn row(text: &mut String, name: &str, times: Option<Percentiles>) {
    if let Some(times) = times {
        let values = [times.mean, times.p50, times.p95, times.p99, times.max];
        line(text, name, values.map(|value| format!("{value:.0}")));
    }
}

fn paper(text: &mut String, name: &str, [mean, p50, p95, p99]: [f64; 4]) {
    let values = [mean, p50, p95, p99].map(|value| format!("{value:.0}"));
    let [mean, p50, p95, p99] = values;
    line(text, name, [mean, p50, p95, p99, "-".to_owned()]);
}

fn line(text: &mut String, name: &str, [mean, p50, p95, p99, max]: [String; 5]) {
    let _ = writeln!(text, "{name:<46}{mean:>8}{p50:>8}{p95:>8}{p99:>8}{max:>8}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::failover::promotion::PromotionTimes;

    #[test]
    fn the_table_is_next_to_the_papers() {
        let crash = CrashTimes {
            total_ms: 520.0,
            phases: BTreeMap::from([("1 detection and election".to_owned(), 360.0)]),
        };
        let promotion = PromotionTimes {
            stall_ms: 33.0,
            total_ms: 160.0,
            phases: BTreeMap::from([("transfer".to_owned(), 32.0)]),
        };
        let refused = Promotion::Refused("not now".to_owned());
        let verdict: Verdict =
            serde_json::from_str(r#"{"acknowledged": 12, "lost": [], "log_ends": ["1.5"]}"#)
                .unwrap();
        let vanished = CrashTimes {
            total_ms: 871.0,
            phases: BTreeMap::new(),
        };
        let measured = Measured {
            place: Place::Across,
            heartbeat_ms: 100,
            crashes: vec![
                (Death::ProcessKilled, crash),
                (Death::HostVanished, vanished),
            ],
            elected_in_soak: Some(0),
            promotions: vec![Promotion::Done(promotion), refused],
            verdict,
        };
        let summary = Summary::of(
            &[measured],
            &BTreeMap::from([("group_replication_defaults".to_owned(), vec![21_600.0])]),
        );
        let table = summary.table();
        for expected in [
            "6632",
            "520",
            "871",
            "nothing done to the ring, 0 leaders were elected",
            "360",
            "357",
            "33",
            "160",
            "21600",
            "12 commits were acknowledged, 0 of",
        ] {
            assert!(table.contains(expected), "{expected} in\n{table}");
        }
        let by_death = summary.by_death(|one| one.total.p50);
        let of = |death| by_death[&death][&Place::Across]["heartbeat_100_ms"];
        assert_eq!(of(Death::ProcessKilled), Some(520.0));
        assert_eq!(of(Death::HostVanished), Some(871.0));
        let mut figures = Figures::new("trial", "a trial").unwrap();
        summary.put_into(&mut figures).unwrap();
    }
}
