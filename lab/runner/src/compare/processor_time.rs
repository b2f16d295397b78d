//! Measures the processor use of this comparison and of other processes. If other processes use the machine, a measured latency is
//! unreliable; the figures show that use.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// The unit of processor time in `/proc`: hundredths of a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// The processor time used since the start of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessorTime {
    taken: Instant,
    everybody_ticks: u64,
    ours_ticks: u64,
}

/// The average number of cores in use between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CoresUsed {
    /// Cores used by this process and all its descendants.
    pub(super) ours: f64,
    /// Cores used by all other processes.
    pub(super) others: f64,
}

impl ProcessorTime {
    /// Reads the current values. `None`: the system has no `/proc`.
    pub(super) fn now() -> Option<Self> {
        let everybody_ticks = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        let mut processes = BTreeMap::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            // Processes may start and end during the loop. A process without a file has ended.
            if let Some(id) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok())
                && let Some(process) = fs::read_to_string(entry.path().join("stat"))
                    .ok()
                    .and_then(|stat| parse(&stat))
            {
                processes.insert(id, process);
            }
        }
        let ours_ticks = family_ticks(&processes, std::process::id());
        Some(Self {
            taken: Instant::now(),
            everybody_ticks,
            ours_ticks,
        })
    }

    /// Returns the cores used between `earlier` and this moment.
    pub(super) fn since(&self, earlier: &Self) -> CoresUsed {
        let seconds = (self.taken - earlier.taken).as_secs_f64().max(0.001);
        let cores =
            |now: u64, then: u64| now.saturating_sub(then) as f64 / TICKS_PER_SECOND / seconds;
        let ours = cores(self.ours_ticks, earlier.ours_ticks);
        CoresUsed {
            ours,
            others: (cores(self.everybody_ticks, earlier.everybody_ticks) - ours).max(0.0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    own_ticks: u64,
    /// The time of child processes that have ended.
    ended_children_ticks: u64,
}

/// Parses `/proc/<id>/stat`. The fields are counted after the name in parentheses, because the name may contain any character.
fn parse(stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        own_ticks: ticks(11)? + ticks(12)?,
        ended_children_ticks: ticks(13)? + ticks(14)?,
    })
}

/// Parses the first line of `/proc/stat`: user, nice, system, idle, waiting for a disk, interrupts, …
fn busy_ticks(stat: &str) -> Option<u64> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = numbers
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    // The time of guests (the ninth field and later) is already included in the user time.
    let counted = ticks.get(..8)?;
    Some(counted.iter().sum::<u64>() - counted[3] - counted[4])
}

/// Returns the time of `root` and all its descendants, including the ended ones. When a descendant ends, its parent's time includes its
/// time, so that the sum never decreases.
fn family_ticks(processes: &BTreeMap<u32, Process>, root: u32) -> u64 {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (id, process) in processes {
        children.entry(process.parent).or_default().push(*id);
    }
    let (mut open, mut total) = (vec![root], 0);
    while let Some(id) = open.pop() {
        if let Some(process) = processes.get(&id) {
            total += process.own_ticks + process.ended_children_ticks;
        }
        // Removes the entry, so that the loop ends even if reused ids make a cycle.
        open.extend(children.remove(&id).unwrap_or_default());
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a ) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        let expected = Process {
            parent: 7,
            own_ticks: 120,
            ended_children_ticks: 7,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("42 (cut"), None);
    }

    #[test]
    fn busy_is_neither_idle_nor_waiting_for_a_disk_nor_counted_twice() {
        assert_eq!(
            busy_ticks("cpu  10 1 5 1000 200 1 2 3 4 0\ncpu0 1\n"),
            Some(22)
        );
        assert_eq!(busy_ticks("intr 1\n"), None);
    }

    #[test]
    fn a_family_is_its_root_and_all_below() {
        let process = |parent| Process {
            parent,
            own_ticks: 10,
            ended_children_ticks: 1,
        };
        let processes = BTreeMap::from([
            (1, process(0)),
            (5, process(1)),
            (6, process(5)),
            (7, process(6)),
            (8, process(1)),
        ]);
        assert_eq!(family_ticks(&processes, 5), 33);
        let circle = BTreeMap::from([(5, process(6)), (6, process(5))]);
        assert!(family_ticks(&circle, 5) >= 22);
    }

    #[test]
    fn work_of_this_process_counts_as_ours() {
        let before = ProcessorTime::now().unwrap();
        let mut value = 1_u64;
        while before.taken.elapsed().as_millis() < 300 {
            value = std::hint::black_box(value.wrapping_mul(31));
        }
        let used = ProcessorTime::now().unwrap().since(&before);
        assert!(used.ours > 0.05, "{used:?}");
    }
}
