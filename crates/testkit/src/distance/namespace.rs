//! Network namespaces with names of ours: `witness-<pid>-<start time>-<number>`, by process id and start time of the harness
//! that made them. So the ones of a harness that is gone are known for certain, and the next one removes them with the
//! processes that were left running inside.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::wire::ip;

const PREFIX: &str = "witness";
/// Where `ip netns` keeps the names.
const FOLDER: &str = "/run/netns";
/// The field of `/proc/<pid>/stat` that tells a process from a later one with the same id, counted after the name in brackets.
const START_TIME_FIELD: usize = 19;

/// A namespace; its name is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one, with nothing in it but a loopback device that is down.
    pub(super) fn make() -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let owner = Owner::this_process()?;
        let name = owner.name(NUMBER.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        Ok(Self { name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a new thread inside.
    pub(super) fn enter<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let path = PathBuf::from(FOLDER).join(&self.name);
        let thread = thread::Builder::new().spawn(move || {
            let entered = File::open(&path).and_then(|file| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(io::Error::from)
            });
            entered.with_context(|| format!("cannot enter {}", path.display()))?;
            Ok(work())
        })?;
        Ok(thread)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What cannot be removed now is removed as stale by the next harness.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Removes the namespaces of harnesses that are gone, with the processes that still run inside.
pub(super) fn remove_stale() -> Result<()> {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return Ok(()); // nobody has made a namespace on this machine yet
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Owner::of(&name).is_some_and(|owner| owner.is_gone()) {
            // Another harness may be doing the same.
            let left = ip(&["netns", "pids", &name]).unwrap_or_default();
            for pid in left.lines().filter_map(|line| line.trim().parse().ok()) {
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let _ = ip(&["netns", "delete", &name]);
        }
    }
    Ok(())
}

/// The process that made a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    start_time: u64,
}

impl Owner {
    fn this_process() -> Result<Self> {
        let pid = process::id();
        let start_time = start_time(pid).context("/proc does not describe this process")?;
        Ok(Self { pid, start_time })
    }

    /// From a namespace's name, if it is one of ours.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let ours = parts.next()? == PREFIX;
        let pid = parts.next()?.parse().ok()?;
        let start_time = parts.next()?.parse().ok()?;
        let _number: usize = parts.next()?.parse().ok()?;
        (ours && parts.next().is_none()).then_some(Self { pid, start_time })
    }

    fn name(&self, number: usize) -> String {
        format!("{PREFIX}-{}-{}-{number}", self.pid, self.start_time)
    }

    fn is_gone(&self) -> bool {
        start_time(self.pid) != Some(self.start_time)
    }
}

/// In clock ticks since the machine started; nothing of a process that does not exist.
fn start_time(pid: u32) -> Option<u64> {
    start_time_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn start_time_in(stat: &str) -> Option<u64> {
    // The name may hold spaces and brackets; the last bracket ends it.
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
    fn a_name_tells_its_owner_and_foreign_names_none() {
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
    fn the_start_time_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=24).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) b (c)) {}", fields.join(" "));
        assert_eq!(start_time_in(&stat), Some(22));
        assert_eq!(start_time_in("17 (a) 1 2"), None);
    }
}
