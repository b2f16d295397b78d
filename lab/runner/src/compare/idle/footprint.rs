//! The resource use of one process, as the kernel reports it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

/// The resource use of a process at one moment.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    pub(super) memory: Memory,
    /// The activity of each thread, by thread id.
    threads: BTreeMap<u32, Activity>,
}

/// The memory of a process, in kibibytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// All resident memory (Rss), as `ps` shows it.
    pub(super) resident: u64,
    /// The anonymous part of the resident memory. The other part is pages of files, mostly of the program, which all its processes share.
    pub(super) own: u64,
    /// The proportional memory (Pss): each shared page counts as one page divided by the number of processes that share it.
    pub(super) proportional: u64,
}

/// The activity of a process or a thread: nanoseconds on a processor, and voluntary context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Activity {
    pub(super) ran_nanos: u64,
    pub(super) waits: u64,
}

impl Footprint {
    /// Returns the resource use of a running process.
    ///
    /// # Errors
    /// The kernel does not report it, or the process has ended.
    pub(super) fn of(process: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{process}/{file}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let memory = memory(&read("smaps_rollup")?).context("the kernel does not tell memory")?;
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
            let of = |file| fs::read_to_string(entry.path().join(file)).ok();
            // The files of a thread that has just ended are missing.
            if let Some(id) = entry.file_name().to_str().and_then(|id| id.parse().ok())
                && let Some(thread) = of("schedstat").zip(of("status"))
                && let Some(thread) = parse(&thread.0, &thread.1)
            {
                threads.insert(id, thread);
            }
        }
        Ok(Self { memory, threads })
    }

    /// The number of threads.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Returns the activity since an earlier moment. Threads that have ended do not count.
    pub(super) fn since(&self, earlier: &Self) -> Activity {
        let mut sum = Activity::default();
        for (id, now) in &self.threads {
            let then = earlier.threads.get(id).copied().unwrap_or_default();
            sum.ran_nanos += now.ran_nanos.saturating_sub(then.ran_nanos);
            sum.waits += now.waits.saturating_sub(then.waits);
        }
        sum
    }
}

/// Parses `/proc/<id>/smaps_rollup`.
fn memory(rollup: &str) -> Option<Memory> {
    let of = |key: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some(Memory {
        resident: of("Rss:")?,
        own: of("Anonymous:")?,
        proportional: of("Pss:")?,
    })
}

/// Parses the files `schedstat` and `status` of a thread.
fn parse(schedstat: &str, status: &str) -> Option<Activity> {
    let waits = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Some(Activity {
        ran_nanos: schedstat.split_whitespace().next()?.parse().ok()?,
        waits: waits?.trim().parse().ok()?,
    })
}

#[cfg(test)]
impl Footprint {
    /// Builds the resource use of a process with one thread, from its memory and activity.
    pub(super) fn made(memory: Memory, ran_nanos: u64, waits: u64) -> Self {
        let thread = Activity { ran_nanos, waits };
        Self {
            memory,
            threads: BTreeMap::from([(1, thread)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let rollup = "5500-7ffe ---p 00000000 00:00 0   [rollup]\nRss:      52012 kB\nPss:      37352 kB\n\
                      Pss_Anon:  30732 kB\nAnonymous:      30732 kB\n";
        let expected = Memory {
            resident: 52_012,
            own: 30_732,
            proportional: 37_352,
        };
        assert_eq!(memory(rollup), Some(expected));
        assert_eq!(memory("Rss: what\n"), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        let thread = Activity {
            ran_nanos: 12,
            waits: 7,
        };
        assert_eq!(parse("12 3 4\n", status), Some(thread));
        assert_eq!(parse("12 3 4\n", "Name:\tx\n"), None);
    }

    #[test]
    fn the_work_of_this_process_is_counted() {
        let own = std::process::id();
        let before = Footprint::of(own).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut value = 1_u64;
        let after = loop {
            for _ in 0..1_000_000 {
                value = std::hint::black_box(value.wrapping_mul(31));
            }
            std::thread::sleep(Duration::from_millis(1));
            let after = Footprint::of(own).unwrap();
            let did = after.since(&before);
            if did.ran_nanos > 10_000_000 && did.waits >= 1 {
                break after;
            }
            // On a busy machine this test may get little processor time, so that the limit is a minute.
            assert!(Instant::now() < deadline, "{did:?}");
        };
        assert!(after.memory.resident >= after.memory.own && after.threads() >= 1);
    }
}
