//! Seeds of the simulator that failed once: `simulator/kept-seeds.txt`, a line each. `cargo xtask test` plays them all, so that
//! what was found stays found; whoever finds one commits its line with the cure.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::sim::SCENARIOS;

/// What a seed plays that draws everything by itself.
pub(crate) const MIXED: &str = "mixed";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptSeed {
    /// When it failed, as `2026-11-25`.
    pub(crate) date: String,
    /// `None`: the seed draws everything.
    pub(crate) scenario: Option<String>,
    pub(crate) seed: u64,
    /// What it found, in words on one line.
    pub(crate) words: String,
}

impl fmt::Display for KeptSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let played = self.scenario.as_deref().unwrap_or(MIXED);
        write!(f, "{} {played} {} {}", self.date, self.seed, self.words)
    }
}

/// Today (UTC), as `2026-11-25`.
pub(crate) fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.chars().take("2026-11-25".len()).collect()
}

fn path() -> PathBuf {
    testkit::checkout().join("simulator/kept-seeds.txt")
}

/// All of them.
///
/// # Errors
/// When the file cannot be read, or a line is none.
pub(crate) fn all() -> Result<Vec<KeptSeed>> {
    let path = path();
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

/// Adds one that is not there yet.
///
/// # Errors
/// When the file cannot be read or written.
pub(crate) fn keep(one: &KeptSeed) -> Result<()> {
    keep_in(&path(), one)
}

fn keep_in(path: &Path, one: &KeptSeed) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("no {}", path.display()))?;
    let same = |kept: &KeptSeed| (kept.seed, &kept.scenario) == (one.seed, &one.scenario);
    if parse(&text)?.iter().any(same) {
        return Ok(());
    }
    let mut file = OpenOptions::new().append(true).open(path)?;
    let words = one.words.split_whitespace().collect::<Vec<_>>().join(" ");
    writeln!(
        file,
        "{}",
        KeptSeed {
            words,
            ..one.clone()
        }
    )?;
    Ok(())
}

fn parse(text: &str) -> Result<Vec<KeptSeed>> {
    let lines = text.lines().enumerate();
    let told = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    told.map(|(number, line)| one(line).with_context(|| format!("line {}: `{line}`", number + 1)))
        .collect()
}

fn one(line: &str) -> Result<KeptSeed> {
    let mut parts = line.splitn(4, ' ');
    let (Some(date), Some(played), Some(seed), Some(words)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        bail!("a line is: date, scenario or `{MIXED}`, seed, and what it found");
    };
    if played != MIXED && !SCENARIOS.contains(&played) {
        bail!("there is no scenario `{played}`");
    }
    Ok(KeptSeed {
        date: date.to_owned(),
        scenario: (played != MIXED).then(|| played.to_owned()),
        seed: seed.parse().context("the seed is no number")?,
        words: words.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(scenario: Option<&str>, seed: u64, words: &str) -> KeptSeed {
        KeptSeed {
            date: "2026-11-25".to_owned(),
            scenario: scenario.map(str::to_owned),
            seed,
            words: words.to_owned(),
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_stands_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept-seeds.txt");
        fs::write(&path, "# what stands here\n\n").unwrap();
        for one in [
            kept(None, 7, "logs match:\n  of 3 and 4"),
            kept(Some("purges"), 7, "a purge cuts no region off"),
            kept(None, 7, "again, in other words"),
        ] {
            keep_in(&path, &one).unwrap();
        }
        assert_eq!(
            parse(&fs::read_to_string(&path).unwrap()).unwrap(),
            [
                kept(None, 7, "logs match: of 3 and 4"),
                kept(Some("purges"), 7, "a purge cuts no region off"),
            ]
        );
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let said = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(said("\n2026-11-25 mixed x y").starts_with("line 2: `2026-11-25 mixed x y`: "));
        assert!(said("2026-11-25 purge 3 y").contains("no scenario `purge`"));
        assert!(said("2026-11-25 mixed 3").contains("a line is: "));
    }

    #[test]
    fn the_file_of_the_checkout_can_be_read() {
        assert!(!all().unwrap().is_empty());
    }
}
