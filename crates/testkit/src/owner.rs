//! Names for resources that outlive a killed harness, such as namespaces and mounts: `witness-<pid>-<start time>-<number>`. Process id and
//! start time are those of the harness that created the resource. So it is certain whether that harness has ended.

use std::fs;
use std::process;

use anyhow::{Context, Result};

const PREFIX: &str = "witness";
/// The index of the start time in `/proc/<pid>/stat`, counted after the name in brackets. It distinguishes a process from a later one with
/// the same id.
const START_TIME_FIELD: usize = 19;

/// The process that created a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: u32,
    start_time: u64,
}

impl Owner {
    /// Returns the calling process.
    pub(crate) fn this_process() -> Result<Self> {
        let pid = process::id();
        let start_time = start_time(pid).context("/proc does not describe this process")?;
        Ok(Self { pid, start_time })
    }

    /// Parses a resource's name; `None` if no harness created it.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let ours = parts.next()? == PREFIX;
        let pid = parts.next()?.parse().ok()?;
        let start_time = parts.next()?.parse().ok()?;
        let _number: usize = parts.next()?.parse().ok()?;
        (ours && parts.next().is_none()).then_some(Self { pid, start_time })
    }

    /// Returns the name of the resource with this number.
    pub(crate) fn name(&self, number: usize) -> String {
        format!("{PREFIX}-{}-{}-{number}", self.pid, self.start_time)
    }

    /// True if the process has ended.
    pub(crate) fn is_gone(&self) -> bool {
        start_time(self.pid) != Some(self.start_time)
    }
}

/// Returns a process's start time in clock ticks since the machine's boot; `None` if the process does not exist.
fn start_time(pid: u32) -> Option<u64> {
    start_time_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn start_time_in(stat: &str) -> Option<u64> {
    // The name may contain spaces and brackets; the last bracket ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields
        .split_whitespace()
        .nth(START_TIME_FIELD)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_its_owner_and_foreign_names_none() {
        let owner = Owner {
            pid: 4711,
            start_time: 99,
        };
        assert_eq!(owner.name(3), "witness-4711-99-3");
        assert_eq!(Owner::of("witness-4711-99-3"), Some(owner));
        for foreign in [
            "witness",
            "witness-a-99-3",
            "witness-1-2-3-4",
            "other-1-2-3",
        ] {
            assert_eq!(Owner::of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn an_owner_is_gone_when_its_id_belongs_to_a_later_process() {
        let this = Owner::this_process().unwrap();
        assert!(!this.is_gone());
        let before = Owner {
            start_time: this.start_time + 1,
            ..this
        };
        assert!(before.is_gone());
    }

    #[test]
    fn the_start_time_is_found_after_any_name() {
        let fields: Vec<String> = (3..=24).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) b (c)) {}", fields.join(" "));
        assert_eq!(start_time_in(&stat), Some(22));
        assert_eq!(start_time_in("17 (a) 1 2"), None);
    }
}
