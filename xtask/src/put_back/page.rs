//! What was put back, and what found it: `docs/put-back.jsonl` has a line for each fault, of the last time that it was tried, and the
//! table in `docs/put-back.md` is made of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::evidence::around_table;

/// Between these lines of the page stands the table.
const BEGIN: &str = "<!-- the table is written by `cargo xtask put-back` -->\n";
const END: &str = "<!-- the table ends -->\n";

/// What came of one fault that was put back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) name: String,
    /// When it was tried (UTC), as `2026-11-25`.
    pub(crate) date: String,
    /// The row of the track record, by its first words.
    pub(crate) fault: String,
    /// What was to find it: seeds of a scenario, or a test.
    pub(crate) by: String,
    pub(crate) end: End,
    /// What it took, without the build.
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// This seed failed, after so many had run.
    Seed {
        seed: u64,
        seeds: u64,
        words: String,
    },
    /// The test failed.
    Test,
    /// None of so many seeds failed, or the test passed.
    NotFound { seeds: u64 },
    /// It was not tried, for this reason.
    NotTried(String),
}

impl Trial {
    pub(crate) fn is_found(&self) -> bool {
        matches!(self.end, End::Seed { .. } | End::Test)
    }

    /// What came of it the last time, in few words.
    fn last(&self) -> String {
        let date = &self.date;
        match &self.end {
            End::Seed { seed, .. } => format!("seed {seed} found it on {date}"),
            End::Test => format!("it found it on {date}"),
            End::NotFound { seeds: 0 } => format!("NOT FOUND on {date}"),
            End::NotFound { seeds } => format!("NOT FOUND by {seeds} seeds on {date}"),
            End::NotTried(why) => format!("NOT TRIED on {date}: {why}"),
        }
    }

    /// On one line.
    pub(crate) fn told(&self) -> String {
        let Self {
            name, by, seconds, ..
        } = self;
        match &self.end {
            End::Seed { seed, seeds, words } => format!(
                "{name}: found by seed {seed} ({by}) after {seeds} seeds and {seconds:.0} s: {words}"
            ),
            End::Test => format!("{name}: found by the {by} in {seconds:.0} s"),
            End::NotFound { seeds: 0 } => format!("{name}: NOT FOUND by the {by}"),
            End::NotFound { seeds } => {
                format!("{name}: NOT FOUND by {seeds} seeds ({by}) in {seconds:.0} s")
            }
            End::NotTried(why) => format!("{name}: NOT TRIED: {why}"),
        }
    }
}

/// The file and the page.
pub(crate) struct Page {
    folder: PathBuf,
    trials: BTreeMap<String, Trial>,
}

impl Page {
    /// That of a folder of documentation.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is none.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("put-back.jsonl");
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        let mut trials = BTreeMap::new();
        for line in text.lines() {
            let trial: Trial = serde_json::from_str(line)
                .with_context(|| format!("{}: a line is no trial: {line}", path.display()))?;
            trials.insert(trial.name.clone(), trial);
        }
        Ok(Self {
            folder: folder.to_owned(),
            trials,
        })
    }

    /// What came of a fault the last time, in few words.
    pub(crate) fn last_of(&self, name: &str) -> String {
        let trial = self.trials.get(name);
        trial.map_or_else(|| "not tried yet".to_owned(), Trial::last)
    }

    /// Leaves out what is about a name that is no more.
    pub(crate) fn keep(&mut self, is_name: impl Fn(&str) -> bool) {
        self.trials.retain(|name, _| is_name(name));
    }

    /// Writes down what came of one, in the place of what came of it before.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn add(&mut self, trial: Trial) -> Result<()> {
        self.trials.insert(trial.name.clone(), trial);
        let mut lines = String::new();
        for trial in self.trials.values() {
            lines += &serde_json::to_string(trial)?;
            lines.push('\n');
        }
        fs::write(self.folder.join("put-back.jsonl"), lines)?;
        let path = self.folder.join("put-back.md");
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        fs::write(&path, self.with_table(&text)?)?;
        Ok(())
    }

    fn with_table(&self, page: &str) -> Result<String> {
        let [before, _, behind] = around_table(page, BEGIN, END)?;
        Ok(format!("{before}{BEGIN}{}{END}{behind}", self.table()))
    }

    fn table(&self) -> String {
        let mut text = String::from(
            "| name | fault | found by | after seeds | seconds | date |\n|---|---|---|---|---|---|\n",
        );
        for trial in self.trials.values() {
            let by = trial.by.strip_prefix("simulator: ").unwrap_or(&trial.by);
            let (found, seeds) = match &trial.end {
                End::Seed { seed, seeds, .. } => {
                    (format!("seed {seed} (`{by}`)"), seeds.to_string())
                }
                End::Test => (format!("`{by}`"), String::new()),
                End::NotFound { seeds } => (format!("**not found** (`{by}`)"), seeds.to_string()),
                End::NotTried(why) => (format!("**not tried**: {why}"), String::new()),
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {found} | {seeds} | {:.0} | {} |",
                trial.name, trial.fault, trial.seconds, trial.date
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(name: &str, end: End) -> Trial {
        Trial {
            name: name.to_owned(),
            date: "2026-11-25".to_owned(),
            fault: "A ring could …".to_owned(),
            by: "simulator: --scenario purges --from 1".to_owned(),
            end,
            seconds: 12.4,
        }
    }

    fn seed(seed: u64) -> End {
        let words = "logs match: no".to_owned();
        End::Seed {
            seed,
            seeds: 4,
            words,
        }
    }

    #[test]
    fn the_last_trial_of_each_stands_in_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        fs::write(folder.path().join("put-back.jsonl"), "").unwrap();
        let page = format!("# Page\n\n{BEGIN}old\n{END}behind\n");
        fs::write(folder.path().join("put-back.md"), page).unwrap();
        let mut page = Page::in_folder(folder.path()).unwrap();
        for one in [
            trial("b", End::NotFound { seeds: 900 }),
            trial("a", seed(3)),
            trial("b", seed(7)),
            trial("gone", seed(9)),
        ] {
            page.add(one).unwrap();
        }
        let mut page = Page::in_folder(folder.path()).unwrap();
        page.keep(|name| name != "gone");
        page.add(trial("c", End::NotFound { seeds: 900 })).unwrap();
        assert_eq!(read("put-back.jsonl").lines().count(), 3);
        assert_eq!(page.last_of("b"), "seed 7 found it on 2026-11-25");
        assert_eq!(page.last_of("c"), "NOT FOUND by 900 seeds on 2026-11-25");
        assert_eq!(page.last_of("gone"), "not tried yet");
        assert_eq!(
            read("put-back.md"),
            format!(
                "# Page\n\n{BEGIN}\
                | name | fault | found by | after seeds | seconds | date |\n\
                |---|---|---|---|---|---|\n\
                | `a` | A ring could … | seed 3 (`--scenario purges --from 1`) | 4 | 12 | 2026-11-25 |\n\
                | `b` | A ring could … | seed 7 (`--scenario purges --from 1`) | 4 | 12 | 2026-11-25 |\n\
                | `c` | A ring could … | **not found** (`--scenario purges --from 1`) | 900 | 12 | 2026-11-25 |\n\
                {END}behind\n"
            )
        );
    }

    #[test]
    fn only_what_failed_counts_as_found() {
        assert!(trial("a", seed(3)).is_found() && trial("a", End::Test).is_found());
        let not_found = trial("a", End::NotFound { seeds: 900 });
        assert!(!not_found.is_found() && not_found.told().contains("NOT FOUND by 900 seeds"));
        let not_tried = trial("a", End::NotTried("it does not compile: error".to_owned()));
        assert!(!not_tried.is_found() && not_tried.told().contains("does not compile"));
    }

    #[test]
    fn the_page_of_the_checkout_says_what_its_lines_say() {
        let folder = testkit::checkout().join("docs");
        let page = Page::in_folder(&folder).unwrap();
        let text = fs::read_to_string(folder.join("put-back.md")).unwrap();
        assert_eq!(text, page.with_table(&text).unwrap());
    }
}
