//! What stands in front of the diff in `faults/NAME.patch`: which row of the track record it puts back, and what finds it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::track_record::{Row, only};
use crate::sim::SCENARIOS;

const ROW: &str = "Row: ";
const FOUND_BY: &str = "Found by: ";
const BEYOND: &str = "Beyond the simulator: ";

/// A fault that can be put back into the product's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// The name of its file, without its end.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// How the fault begins in the track record.
    row: String,
    pub(crate) found_by: FoundBy,
    /// Why no seed finds what a test finds: none was found in so many, or what it takes is not simulated.
    pub(crate) beyond: Option<String>,
}

/// What finds a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// Seeds of the simulator, from one on.
    Seeds { scenario: Option<String>, from: u64 },
    /// A test; these are the arguments of `cargo test`, the last one its name.
    Test(Vec<String>),
    /// A task of this program that needs Docker: these are its arguments.
    Task(Vec<String>),
}

/// Tasks that find what stands in packages, units and images.
const TASKS: [&str; 2] = ["packages", "containers --short"];

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeds { scenario, from } => {
                write!(f, "simulator:")?;
                if let Some(scenario) = scenario {
                    write!(f, " --scenario {scenario}")?;
                }
                write!(f, " --from {from}")
            }
            Self::Test(arguments) => write!(f, "test: {}", arguments.join(" ")),
            Self::Task(arguments) => write!(f, "task: {}", arguments.join(" ")),
        }
    }
}

/// All patches of a folder, by name.
///
/// # Errors
/// When the folder cannot be read, or the words in front of a diff are not as they have to be.
pub(crate) fn all_in(folder: &Path) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "patch") {
            patches.push(read(path)?);
        }
    }
    patches.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(patches)
}

fn read(path: PathBuf) -> Result<Patch> {
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(&name, &path, &text).with_context(|| path.display().to_string())
}

fn parse(name: &str, path: &Path, text: &str) -> Result<Patch> {
    let (words, _) = text
        .split_once("\ndiff --git ")
        .context("there is no diff: what is put back is told as `git diff` prints it")?;
    let line = |key: &str| words.lines().find_map(|line| line.strip_prefix(key));
    let needed = |key: &str| line(key).with_context(|| format!("there is no line `{key}…`"));
    Ok(Patch {
        name: name.to_owned(),
        path: path.to_owned(),
        row: needed(ROW)?.trim().to_owned(),
        found_by: found_by(needed(FOUND_BY)?)?,
        beyond: line(BEYOND).map(|words| words.trim().to_owned()),
    })
}

fn found_by(words: &str) -> Result<FoundBy> {
    let (what, arguments) = words.split_once(':').unwrap_or((words, ""));
    let mut arguments = arguments.split_whitespace();
    match what {
        "simulator" => {
            let (mut scenario, mut from) = (None, 1);
            while let Some(argument) = arguments.next() {
                match (argument, arguments.next()) {
                    ("--scenario", Some(name)) if SCENARIOS.contains(&name) => {
                        scenario = Some(name.to_owned());
                    }
                    ("--from", Some(seed)) => from = seed.parse().context("no seed")?,
                    _ => bail!("seeds are told by `--scenario NAME` and `--from SEED`: {words}"),
                }
            }
            Ok(FoundBy::Seeds { scenario, from })
        }
        "test" => {
            let arguments: Vec<_> = arguments.map(str::to_owned).collect();
            let by_package = arguments.first().is_some_and(|first| first == "-p");
            if !by_package || arguments.len() < 3 {
                bail!("a test is told by `-p PACKAGE [--lib|--test PROGRAM] NAME`: {words}");
            }
            Ok(FoundBy::Test(arguments))
        }
        "task" => {
            let arguments: Vec<_> = arguments.map(str::to_owned).collect();
            if !TASKS.contains(&arguments.join(" ").as_str()) {
                bail!("a task is one of `{}`: {words}", TASKS.join("`, `"));
            }
            Ok(FoundBy::Task(arguments))
        }
        _ => bail!("a fault is found by `simulator:`, `test:` or `task:`, and not by `{what}`"),
    }
}

impl Patch {
    /// The one row that it puts back.
    ///
    /// # Errors
    /// When no row begins so, or more than one.
    pub(crate) fn row_in<'a>(&self, rows: &'a [Row]) -> Result<&'a Row> {
        only(rows, &self.row).with_context(|| self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::track_record;
    use super::*;

    fn parsed(text: &str) -> Result<Patch> {
        parse("a-name", Path::new("faults/a-name.patch"), text)
    }

    fn refused(text: &str) -> String {
        format!("{:#}", parsed(text).unwrap_err())
    }

    const DIFF: &str = "\ndiff --git a/x b/x\n";

    #[test]
    fn a_patch_says_its_row_and_what_finds_it() {
        let patch = parsed(&format!(
            "Row: A ring could\nFound by: simulator: --scenario purges --from 17\n{DIFF}"
        ))
        .unwrap();
        let seeds = FoundBy::Seeds {
            scenario: Some("purges".to_owned()),
            from: 17,
        };
        assert_eq!((&patch.found_by, &patch.beyond), (&seeds, &None));
        assert_eq!(seeds.to_string(), "simulator: --scenario purges --from 17");

        let words = "test: -p consensus --lib a_founder";
        let patch = parsed(&format!(
            "Row: A ring\nFound by: {words}\nBeyond the simulator: 300 seeds\n{DIFF}"
        ))
        .unwrap();
        assert_eq!(patch.found_by.to_string(), words);
        assert_eq!(patch.beyond.as_deref(), Some("300 seeds"));
        let words = "task: containers --short";
        assert_eq!(found_by(words).unwrap().to_string(), words);
        let from_the_first = found_by("simulator:").unwrap();
        assert_eq!(from_the_first.to_string(), "simulator: --from 1");
    }

    #[test]
    fn what_is_missing_or_unknown_is_told() {
        let found = "Found by: simulator:\n";
        assert!(refused(&format!("Row: A\n{found}")).contains("no diff"));
        assert!(refused(&format!("{found}{DIFF}")).contains("`Row: …`"));
        assert!(refused(&format!("Row: A\n{DIFF}")).contains("`Found by: …`"));
        for words in [
            "simulator: --scenario purge",
            "simulator: --seed 7",
            "test: consensus",
            "test: -p consensus",
            "task: containers",
            "nemesis: --seed 3",
        ] {
            let _ = refused(&format!("Row: A\nFound by: {words}\n{DIFF}"));
        }
    }

    #[test]
    fn a_patch_names_one_row() {
        let rows = track_record::rows(
            "| 2026-11-20 | A ring could do this | seen | `t` |\n| 2026-11-20 | A ring could do that | seen | `t` |\n",
        )
        .unwrap();
        let said = |row: &str| {
            let patch = parsed(&format!("Row: {row}\nFound by: simulator:\n{DIFF}")).unwrap();
            patch
                .row_in(&rows)
                .cloned()
                .map_err(|error| format!("{error:#}"))
        };
        assert_eq!(said("A ring could do that"), Ok(rows[1].clone()));
        assert!(said("A ring could").unwrap_err().contains("more than one"));
        assert!(said("A ring can").unwrap_err().contains("no row"));
    }
}
