//! The machine, the time and the revision that figures belong to. What a system does not tell stays unknown: `null`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Serialize;

/// The machine that measured.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Cores that this process may use.
    pub cores: Option<usize>,
    /// Memory in all.
    pub memory_bytes: Option<u64>,
    /// Name and release of the operating system's kernel.
    pub kernel: String,
    /// Processes that wanted to run in the minute before: well above zero, others used the machine.
    pub load_average_1_min: Option<f64>,
}

impl Machine {
    /// Looks at this machine now.
    #[must_use]
    pub fn observe() -> Self {
        let system = rustix::system::uname();
        let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
        Self {
            cpu: value_of(&text("/proc/cpuinfo"), "model name").map(str::to_owned),
            cores: std::thread::available_parallelism().ok().map(Into::into),
            memory_bytes: memory_bytes(&text("/proc/meminfo")),
            kernel: format!(
                "{} {}",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy()
            ),
            load_average_1_min: load_average(),
        }
    }
}

/// The one-minute load average.
#[must_use]
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Now, as RFC 3339 in UTC.
pub(super) fn now_utc() -> Result<String> {
    let output = Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .context("cannot run `date`")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The checkout's commit, marked when files differ from it. `None` outside a checkout.
pub(super) fn revision(checkout: &Path) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(checkout)
        .args(["describe", "--always", "--dirty"])
        .output()
        .ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !name.is_empty()).then_some(name)
}

/// The value of the first line `key : value`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kibibytes: u64 = value_of(meminfo, "MemTotal")?
        .strip_suffix(" kB")?
        .trim()
        .parse()
        .ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_tables_are_read() {
        assert_eq!(
            value_of("processor\t: 0\nmodel name\t: A CPU: fast\n", "model name"),
            Some("A CPU: fast")
        );
        assert_eq!(
            memory_bytes("MemTotal:       1000 kB\nMemFree: 1 kB\n"),
            Some(1_024_000)
        );
        assert_eq!(memory_bytes("MemTotal: what\n"), None);
    }
}
