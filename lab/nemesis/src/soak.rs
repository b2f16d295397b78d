//! Checks for a ring that runs for hours with occasional faults: the leader must not change between the faults, and each member's resource
//! use must not grow.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::cluster::Cluster;
use testkit::figures::private_memory;

/// Time after a recovery in which the leadership may still move to a better placed member.
pub(crate) const CALMS_DOWN: Duration = Duration::from_secs(10);
/// Interval between two checks.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_secs(5);
/// A process that ran for less time is not checked, because its caches are still filling.
const JUDGED_FROM: Duration = Duration::from_secs(600);
/// The memory increase that does not count as growth, as a factor and in bytes: caches, and memory kept by the allocator.
const MORE_MEMORY: (f64, u64) = (1.15, 16 << 20);
/// The increase in file descriptors that does not count as growth: temporary connections.
const MORE_DESCRIPTORS: u64 = 16;

/// A process's resource use at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    age: Duration,
    /// Private memory, in bytes.
    memory: u64,
    descriptors: u64,
}

/// The recorded resource use of all members' processes, by member and process id.
#[derive(Debug, Default)]
pub(crate) struct Footprints(BTreeMap<(usize, u32), Vec<Taken>>);

/// The resource use of a process that ran long enough to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Footprint {
    minutes: u64,
    memory_early_bytes: u64,
    memory_late_bytes: u64,
    descriptors_early: u64,
    descriptors_late: u64,
}

impl Footprints {
    /// Records the resource use of all running members at the time `at` of the run.
    ///
    /// # Errors
    /// The kernel does not report a member's resource use.
    pub(crate) fn look(&mut self, ring: &Cluster, at: Duration) -> Result<()> {
        for index in 0..ring.size() {
            let Some(process) = ring.process_id(index) else {
                continue;
            };
            let memory = private_memory(process)?;
            let open = fs::read_dir(format!("/proc/{process}/fd"));
            let open = open.with_context(|| format!("no descriptors of {}", ring.name(index)))?;
            let seen = self.0.entry((index, process)).or_default();
            seen.push(Taken {
                age: at,
                memory,
                descriptors: open.count() as u64,
            });
        }
        Ok(())
    }

    /// Returns the processes that ran long enough, each with its member's index.
    pub(crate) fn judged(&self) -> Vec<(usize, Footprint)> {
        let processes = self.0.iter();
        processes
            .filter_map(|((index, _), seen)| Some((*index, Footprint::of(seen)?)))
            .collect()
    }
}

impl Footprint {
    /// Compares the medians of the second and the last quarter of the records. The first quarter is ignored, because caches fill after the
    /// start. `None`: the process did not run long enough.
    fn of(seen: &[Taken]) -> Option<Self> {
        let ran = seen.last()?.age.checked_sub(seen.first()?.age)?;
        if ran < JUDGED_FROM {
            return None;
        }
        let quarter = seen.len() / 4;
        let (early, late) = (&seen[quarter..quarter * 2], &seen[seen.len() - quarter..]);
        Some(Self {
            minutes: ran.as_secs() / 60,
            memory_early_bytes: median(early, |taken| taken.memory)?,
            memory_late_bytes: median(late, |taken| taken.memory)?,
            descriptors_early: median(early, |taken| taken.descriptors)?,
            descriptors_late: median(late, |taken| taken.descriptors)?,
        })
    }

    /// Describes the growth as text. `None`: the resource use has not grown.
    pub(crate) fn grew(&self) -> Option<String> {
        let (factor, more) = MORE_MEMORY;
        let allowed = (self.memory_early_bytes as f64 * factor) as u64 + more;
        let minutes = self.minutes;
        if self.memory_late_bytes > allowed {
            return Some(format!(
                "its memory grew from {} to {} MiB within {minutes} minutes",
                self.memory_early_bytes >> 20,
                self.memory_late_bytes >> 20
            ));
        }
        (self.descriptors_late > self.descriptors_early + MORE_DESCRIPTORS).then(|| {
            format!(
                "its open descriptors grew from {} to {} within {minutes} minutes",
                self.descriptors_early, self.descriptors_late
            )
        })
    }
}

fn median(of: &[Taken], what: impl Fn(&Taken) -> u64) -> Option<u64> {
    let mut values: Vec<u64> = of.iter().map(what).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The footprint of a process with one record per minute.
    fn process(minutes: u64, taken: impl Fn(u64) -> (u64, u64)) -> Option<Footprint> {
        let seen = (0..=minutes).map(|minute| {
            let (mebibytes, descriptors) = taken(minute);
            Taken {
                age: Duration::from_secs(minute * 60),
                memory: mebibytes << 20,
                descriptors,
            }
        });
        Footprint::of(&seen.collect::<Vec<_>>())
    }

    #[test]
    fn filling_caches_is_not_growth() {
        let filled = |minute: u64| (60 + minute.min(10), 40 + minute % 5);
        assert_eq!(process(60, filled).and_then(|taken| taken.grew()), None);
        assert!(process(60, filled).is_some());
    }

    #[test]
    fn short_runs_are_not_judged() {
        assert_eq!(process(9, |minute| (60 * minute, 40)), None);
    }

    #[test]
    fn continued_growth_is_reported() {
        let leaks = process(60, |minute| (60 + minute * 2, 40)).and_then(|taken| taken.grew());
        assert!(leaks.is_some_and(|words| words.starts_with("its memory grew from 104 to ")));
        let leaks = process(60, |minute| (60, 40 + minute)).and_then(|taken| taken.grew());
        assert!(leaks.is_some_and(|words| words.starts_with("its open descriptors grew from ")));
    }
}
