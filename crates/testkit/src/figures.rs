//! Results of benches and comparisons, in `target/figures/<name>.json`.
//!
//! Key names contain the unit (`latency_mean_ms`). Measured values are medians with their range over the rounds. Every file contains its
//! time, command and machine.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

/// One file of figures that is being filled.
#[derive(Clone, Debug)]
pub struct Figures {
    name: String,
    values: Map<String, Value>,
}

impl Figures {
    /// Creates figures called `name` for a measurement that begins now. `command` is the command as a user would type it.
    ///
    /// # Errors
    /// If a value cannot be written as JSON.
    pub fn new(name: &str, command: &str) -> Result<Self> {
        let mut figures = Self {
            name: name.to_owned(),
            values: Map::new(),
        };
        figures.set("name", name)?;
        figures.set("command", command)?;
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        figures.set("started_utc", now.to_string())?;
        figures.set("revision", revision(&crate::checkout()))?;
        figures.set("machine", machine())?;
        Ok(figures)
    }

    /// Sets one entry.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn set(&mut self, key: &str, value: impl Serialize) -> Result<()> {
        self.values
            .insert(key.to_owned(), serde_json::to_value(value)?);
        Ok(())
    }

    /// Writes the file into the build's target folder, and returns its path. An older file is replaced atomically.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self) -> Result<PathBuf> {
        self.write_into(&target_folder().join("figures"))
    }

    fn write_into(&self, folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut file = readable_file_in(folder)?;
        serde_json::to_writer_pretty(&mut file, &self.values)?;
        file.write_all(b"\n")?;
        let path = folder.join(format!("{}.json", self.name));
        file.persist(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Returns this build's target folder: the ancestor of the running program that cargo marked as a target folder, else
/// `$CARGO_TARGET_DIR`.
#[must_use]
pub fn target_folder() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let marked = program
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file());
    let named = || env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    marked
        .map(Path::to_path_buf)
        .or_else(named)
        .unwrap_or_else(|| crate::checkout().join("target"))
}

/// Creates a temporary file that other users may read after it is renamed.
pub(crate) fn readable_file_in(folder: &Path) -> Result<NamedTempFile> {
    let everybody = fs::Permissions::from_mode(0o644);
    tempfile::Builder::new()
        .permissions(everybody)
        .tempfile_in(folder)
        .with_context(|| format!("cannot write into {}", folder.display()))
}

// Machine, time and revision of the figures. Values that the system does not report are `null`.

/// Describes the machine that measured: its processor, the cores that this process may use, its memory, the kernel, and the one-minute
/// load average before the run. If the load is well above zero, other processes used the machine.
fn machine() -> Value {
    let system = rustix::system::uname();
    let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let [name, release] = [system.sysname(), system.release()].map(|part| part.to_string_lossy());
    let cores = std::thread::available_parallelism().ok();
    json!({
        "cpu": value_of(&text("/proc/cpuinfo"), "model name"),
        "cores": cores.map(usize::from),
        "memory_bytes": bytes_of(&text("/proc/meminfo"), "MemTotal"),
        "kernel": format!("{name} {release}"),
        "load_average_1_min": load_average(),
    })
}

/// Returns the memory available to programs now, in bytes.
#[must_use]
pub fn available_memory() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// Returns the one-minute load average.
#[must_use]
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Returns the checkout's commit, with a mark if files differ from it. `None` outside a checkout.
#[must_use]
pub fn revision(checkout: &Path) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(checkout)
        .args(["describe", "--always", "--dirty"])
        .output()
        .ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !name.is_empty()).then_some(name)
}

/// Returns the value of the first line `key : value`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

/// Returns a running process's peak memory, in bytes.
///
/// # Errors
/// If the kernel does not report it.
pub fn peak_memory(process: u32) -> Result<u64> {
    memory(process, "VmHWM")
}

/// Returns a running process's private memory, in bytes, without the page cache.
///
/// # Errors
/// If the kernel does not report it.
pub fn private_memory(process: u32) -> Result<u64> {
    memory(process, "RssAnon")
}

fn memory(process: u32, key: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    bytes_of(&status, key).with_context(|| format!("the system does not report {key}"))
}

fn bytes_of(text: &str, key: &str) -> Option<u64> {
    let kibibytes = value_of(text, key)?.strip_suffix(" kB")?.trim();
    kibibytes.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;

    #[test]
    fn a_file_names_its_program_and_machine() {
        let folder = tempfile::tempdir().unwrap();
        let mut figures = Figures::new("trial", "cargo bench --bench trial").unwrap();
        figures
            .set("latency_mean_ms", Spread::of(&[1.0, 2.0]))
            .unwrap();
        let path = figures.write_into(folder.path()).unwrap();
        assert_eq!(path, folder.path().join("trial.json"));
        let read: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(read["command"], "cargo bench --bench trial");
        assert_eq!(read["latency_mean_ms"]["median"], 1.5);
        assert!(read["machine"]["cores"].as_u64().unwrap() >= 1, "{read}");
        assert!(
            read["started_utc"].as_str().unwrap().ends_with('Z'),
            "{read}"
        );
    }

    #[test]
    fn the_target_folder_is_the_one_of_this_build() {
        assert!(target_folder().join("CACHEDIR.TAG").is_file());
    }
}

#[cfg(test)]
mod machine_tests {
    use super::*;

    #[test]
    fn the_systems_tables_are_read() {
        assert_eq!(
            value_of("processor\t: 0\nmodel name\t: A CPU: fast\n", "model name"),
            Some("A CPU: fast")
        );
        assert_eq!(
            bytes_of("MemTotal:       1000 kB\nMemFree: 1 kB\n", "MemTotal"),
            Some(1_024_000)
        );
        assert_eq!(bytes_of("MemTotal: what\n", "MemTotal"), None);
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
