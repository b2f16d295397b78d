//! How much was run so far, and how it went: `docs/evidence.jsonl` has a line for each run and for what it played, and the table in
//! `docs/evidence.md` sums the lines up. [`crate::nightly`] and [`crate::fuzz`] write both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Between these lines of the page stands the table.
const BEGIN: &str =
    "<!-- the table is written by `cargo xtask nightly` and `cargo xtask fuzz` -->\n";
const END: &str = "<!-- the table ends -->\n";

/// What is run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// Seeds of the simulated ring
    Simulator,
    /// Faults at random against a ring with real mysqlds
    Nemesis,
    /// Inputs for parsers; `cargo xtask fuzz` runs them
    #[value(skip)]
    Fuzzer,
}

/// What one run did of one thing that is played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The day on which it began (UTC), as `2026-11-25`.
    pub(crate) date: String,
    /// The checkout's commit.
    pub(crate) revision: Option<String>,
    pub(crate) program: Program,
    /// A scenario of the simulator or a fault of the nemesis, or `mixed`; a target of the fuzzer.
    pub(crate) played: String,
    pub(crate) first_seed: u64,
    /// Seeds of the simulator, cycles of the nemesis, inputs of the fuzzer.
    pub(crate) count: u64,
    /// Transactions that were acknowledged, and looked for afterwards.
    pub(crate) acknowledged: u64,
    pub(crate) faults: u64,
    /// What it took, of a machine as in `docs/testing.md`.
    pub(crate) seconds: f64,
    /// What failed.
    pub(crate) failures: Vec<Found>,
}

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) seed: u64,
    pub(crate) words: String,
    /// The command that plays it again.
    pub(crate) replay: String,
}

/// The file and the page, and the lines of this run behind those that were there.
pub(crate) struct Evidence {
    folder: PathBuf,
    before: Vec<Run>,
    now: Vec<Run>,
}

impl Evidence {
    /// That of the checkout.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is none.
    pub(crate) fn of_the_checkout() -> Result<Self> {
        Self::in_folder(&testkit::checkout().join("docs"))
    }

    pub(crate) fn in_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("evidence.jsonl");
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        let runs = text.lines().map(serde_json::from_str);
        Ok(Self {
            folder: folder.to_owned(),
            before: runs
                .collect::<Result<_, _>>()
                .with_context(|| format!("{}: a line is no run", path.display()))?,
            now: Vec::new(),
        })
    }

    /// Adds to what this run did, and writes both files: a night that is cut short keeps what it has done.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn add(&mut self, run: Run) -> Result<()> {
        let same = |one: &&mut Run| (one.program, &one.played) == (run.program, &run.played);
        match self.now.iter_mut().find(same) {
            None => self.now.push(run),
            Some(one) => {
                one.count += run.count;
                one.acknowledged += run.acknowledged;
                one.faults += run.faults;
                one.seconds += run.seconds;
                one.failures.extend(run.failures);
            }
        }
        self.write()
    }

    /// What this run did.
    pub(crate) fn now(&self) -> &[Run] {
        &self.now
    }

    /// How many seeds, cycles or inputs of this there were, in all runs so far.
    pub(crate) fn count(&self, program: Program, played: &str) -> u64 {
        let runs = self.before.iter().chain(&self.now);
        runs.filter(|run| run.program == program && run.played == played)
            .map(|run| run.count)
            .sum()
    }

    fn write(&self) -> Result<()> {
        let mut lines = String::new();
        for run in self.before.iter().chain(&self.now) {
            lines += &serde_json::to_string(run)?;
            lines.push('\n');
        }
        fs::write(self.folder.join("evidence.jsonl"), lines)?;
        let page = self.folder.join("evidence.md");
        let text = fs::read_to_string(&page).with_context(|| format!("no {}", page.display()))?;
        let runs: Vec<_> = self.before.iter().chain(&self.now).collect();
        fs::write(&page, with_table(&text, &table(&runs))?)?;
        Ok(())
    }
}

fn with_table(page: &str, table: &str) -> Result<String> {
    let [before, _, behind] = around_table(page, BEGIN, END)?;
    Ok(format!("{before}{BEGIN}{table}{END}{behind}"))
}

/// What stands before a table that a command writes, the table, and what stands behind it. It is between two lines of the page.
///
/// # Errors
/// When one of the lines is not there.
pub(crate) fn around_table<'a>(page: &'a str, begin: &str, end: &str) -> Result<[&'a str; 3]> {
    let (before, rest) = page.split_once(begin).context("the page has no table")?;
    let (table, behind) = rest
        .split_once(end)
        .context("the page's table has no end")?;
    Ok([before, table, behind])
}

/// What several runs did together.
#[derive(Default)]
struct Sum {
    count: u64,
    faults: u64,
    acknowledged: u64,
    seconds: f64,
    failures: usize,
}

fn table(runs: &[&Run]) -> String {
    let mut sums: BTreeMap<(Program, &str), Sum> = BTreeMap::new();
    for run in runs {
        for played in ["", &run.played] {
            let sum = sums.entry((run.program, played)).or_default();
            sum.count += run.count;
            sum.faults += run.faults;
            sum.acknowledged += run.acknowledged;
            sum.seconds += run.seconds;
            sum.failures += run.failures.len();
        }
    }
    let mut text = String::from(
        "| what | seeds, cycles or inputs | faults | transactions acknowledged | hours | failed |\n|---|---|---|---|---|---|\n",
    );
    for ((program, played), sum) in sums {
        let what = match (program, played) {
            (Program::Simulator, "") => "**seeds of the simulator**",
            (Program::Nemesis, "") => "**cycles of the nemesis**",
            (Program::Fuzzer, "") => "**inputs of the fuzzer**",
            (_, played) => played,
        };
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} | {:.1} | {} |",
            thousands(sum.count),
            thousands(sum.faults),
            thousands(sum.acknowledged),
            sum.seconds / 3600.0,
            sum.failures
        );
    }
    text
}

/// `1234567` as `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: Program, played: &str, count: u64) -> Run {
        Run {
            date: "2026-11-25".to_owned(),
            revision: Some("b890b709".to_owned()),
            program,
            played: played.to_owned(),
            first_seed: 77,
            count,
            acknowledged: 10 * count,
            faults: 2 * count,
            seconds: 360.0,
            failures: Vec::new(),
        }
    }

    #[test]
    fn what_a_night_does_is_added_to_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let before = run(Program::Simulator, "mixed", 1_000_000);
        let line = serde_json::to_string(&before).unwrap();
        fs::write(folder.path().join("evidence.jsonl"), line + "\n").unwrap();
        let page = format!("# Evidence\n\n{BEGIN}old\n{END}\nbehind\n");
        fs::write(folder.path().join("evidence.md"), page).unwrap();

        let mut evidence = Evidence::in_folder(folder.path()).unwrap();
        evidence.add(run(Program::Simulator, "mixed", 4)).unwrap();
        let found = Found {
            seed: 81,
            words: "logs match".to_owned(),
            replay: "cargo xtask sim --seed 81 --trace".to_owned(),
        };
        let failures = vec![found];
        evidence
            .add(Run {
                failures,
                ..run(Program::Simulator, "mixed", 3)
            })
            .unwrap();
        evidence.add(run(Program::Simulator, "purges", 2)).unwrap();
        evidence.add(run(Program::Nemesis, "mixed", 5)).unwrap();
        evidence.add(run(Program::Fuzzer, "event", 6)).unwrap();

        assert_eq!(read("evidence.jsonl").lines().count(), 5);
        assert_eq!(
            read("evidence.md"),
            format!(
                "# Evidence\n\n{BEGIN}\
                | what | seeds, cycles or inputs | faults | transactions acknowledged | hours | failed |\n\
                |---|---|---|---|---|---|\n\
                | **seeds of the simulator** | 1,000,009 | 2,000,018 | 10,000,090 | 0.4 | 1 |\n\
                | mixed | 1,000,007 | 2,000,014 | 10,000,070 | 0.3 | 1 |\n\
                | purges | 2 | 4 | 20 | 0.1 | 0 |\n\
                | **cycles of the nemesis** | 5 | 10 | 50 | 0.1 | 0 |\n\
                | mixed | 5 | 10 | 50 | 0.1 | 0 |\n\
                | **inputs of the fuzzer** | 6 | 12 | 60 | 0.1 | 0 |\n\
                | event | 6 | 12 | 60 | 0.1 | 0 |\n\
                {END}\nbehind\n"
            )
        );
        let again = Evidence::in_folder(folder.path()).unwrap();
        assert_eq!(again.before[0], before);
        assert_eq!(again.before[1].failures.len(), 1);
    }

    #[test]
    fn the_page_says_what_the_lines_say() {
        let evidence = Evidence::of_the_checkout().unwrap();
        let page = fs::read_to_string(evidence.folder.join("evidence.md")).unwrap();
        let runs: Vec<_> = evidence.before.iter().collect();
        assert_eq!(page, with_table(&page, &table(&runs)).unwrap());
    }
}
