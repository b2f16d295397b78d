//! Network namespaces with names that tell the harness that made them. So the ones of a harness that is gone are known for
//! certain, and the next one removes them with the processes that were left running inside.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::ip::ip;
use crate::owner::Owner;

/// Where `ip netns` keeps the names.
const FOLDER: &str = "/run/netns";

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
