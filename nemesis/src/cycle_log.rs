//! The file that a run leaves behind: a line for each fault and each check, with the time since the start.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::ProgressBar;

/// See the module.
#[derive(Debug)]
pub(crate) struct CycleLog {
    path: PathBuf,
    file: File,
    started: Instant,
    bar: ProgressBar,
}

impl CycleLog {
    /// A new one, in place of the one of an earlier run with the same seed.
    pub(crate) fn create(folder: &Path, seed: u64, bar: ProgressBar) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(format!("seed-{seed}.log"));
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path,
            file,
            started: Instant::now(),
            bar,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line, and shows it as what is being done.
    pub(crate) fn line(&mut self, what: &str) -> Result<()> {
        let at = self.started.elapsed().as_secs_f64();
        let line = format!("{at:8.2} {what}");
        writeln!(self.file, "{line}")?;
        // Without a terminal nobody sees the bar.
        match self.bar.is_hidden() {
            true => eprintln!("{line}"),
            false => self.show(what),
        }
        Ok(())
    }

    /// Shows what is being done.
    pub(crate) fn show(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
}
