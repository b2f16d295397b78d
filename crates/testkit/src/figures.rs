//! What benches and comparisons leave behind: `target/figures/<name>.json`.
//!
//! Units stand in the key names (`latency_mean_ms`), measured values are medians with their spread, and every file says
//! when, by which command and on which machine it came to be.

mod machine;

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};
use tempfile::NamedTempFile;

pub use machine::{Machine, load_average};

/// The median of some measurements, with their range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; the mean of the middle two of an even number.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there were.
    pub samples: usize,
}

impl Spread {
    /// The spread of `values`; `None` of none, or when one of them is not a number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        if sorted.iter().any(|value| value.is_nan()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self {
            median,
            min,
            max,
            samples: sorted.len(),
        })
    }
}

/// One file of figures, being filled.
#[derive(Clone, Debug)]
pub struct Figures {
    name: String,
    values: Map<String, Value>,
}

impl Figures {
    /// Figures called `name`, made by `command` (as a user would type it) from now on.
    ///
    /// # Errors
    /// When the date cannot be told.
    pub fn new(name: &str, command: &str) -> Result<Self> {
        let mut figures = Self {
            name: name.to_owned(),
            values: Map::new(),
        };
        figures.set("name", name)?;
        figures.set("command", command)?;
        figures.set("started_utc", machine::now_utc()?)?;
        figures.set("revision", machine::revision(&crate::checkout()))?;
        figures.set("machine", Machine::observe())?;
        Ok(figures)
    }

    /// Sets one entry.
    ///
    /// # Errors
    /// When the value cannot stand in JSON.
    pub fn set(&mut self, key: &str, value: impl Serialize) -> Result<()> {
        self.values
            .insert(key.to_owned(), serde_json::to_value(value)?);
        Ok(())
    }

    /// Writes the file into the build's target folder, replacing an older one in one step, and returns its path.
    ///
    /// # Errors
    /// When the folder cannot be written.
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

/// The folder that this build went to: the one above the running program that cargo marked as its own, and else what
/// `$CARGO_TARGET_DIR` says.
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

/// A temporary file that, once it has its name, others may read too.
pub(crate) fn readable_file_in(folder: &Path) -> Result<NamedTempFile> {
    let everybody = fs::Permissions::from_mode(0o644);
    tempfile::Builder::new()
        .permissions(everybody)
        .tempfile_in(folder)
        .with_context(|| format!("cannot write into {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_range() {
        let spread = |values: &[f64]| {
            Spread::of(values).map(|spread| (spread.median, spread.min, spread.max, spread.samples))
        };
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0, 3)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0, 4)));
        assert_eq!(spread(&[7.0]), Some((7.0, 7.0, 7.0, 1)));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_file_says_what_made_it_and_where() {
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
