//! What became of each mutant. cargo-mutants tells them apart by line and column, which change with every edit above; here they
//! are known by the text of their line, so that what was found stays known.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One change to the code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Mutant {
    /// From the checkout on.
    pub(super) file: String,
    /// As `replace < with <= in is_near`.
    pub(super) change: String,
    /// The line in which it begins, without the blanks around it.
    pub(super) line: String,
    column: usize,
    /// Which of the lines with this text it is.
    nth: usize,
    /// What cargo-mutants calls it now.
    #[serde(skip)]
    name: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, line, .. } = self;
        write!(f, "{name} at `{line}`")
    }
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// A test failed.
    Killed,
    /// All tests succeeded.
    Survived,
    /// The tests did not end, which somebody would notice.
    TimedOut,
    /// It does not compile.
    Unviable,
}

/// Of all that were ever run. Each has a line of its own in the file, so that whoever has the checkout goes on from there.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcomes(BTreeMap<Mutant, Outcome>);

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    mutant: Mutant,
    outcome: Outcome,
}

impl Outcomes {
    /// # Errors
    /// When the file is there and cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(path)?;
        let kept = text.lines().map(|line| {
            let Kept { mutant, outcome } = serde_json::from_str(line)?;
            Ok((mutant, outcome))
        });
        let kept: Result<_> = kept.collect();
        Ok(Self(kept.with_context(|| {
            format!("{} is not understood", path.display())
        })?))
    }

    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut lines = String::new();
        for (mutant, outcome) in &self.0 {
            let (mutant, outcome) = (mutant.clone(), *outcome);
            lines += &serde_json::to_string(&Kept { mutant, outcome })?;
            lines.push('\n');
        }
        fs::write(path, lines).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn of(&self, mutant: &Mutant) -> Option<Outcome> {
        self.0.get(&known(mutant.clone())).copied()
    }

    /// In the files of these mutants, takes for not run what is no mutant any more, and of which `which` says so. What is known of
    /// other files stays.
    pub(super) fn forget(&mut self, mutants: &[Mutant], which: impl Fn(&Mutant, Outcome) -> bool) {
        let files: BTreeSet<&str> = mutants.iter().map(|mutant| &*mutant.file).collect();
        let there: BTreeSet<Mutant> = mutants.iter().cloned().map(known).collect();
        self.0.retain(|mutant, outcome| {
            !files.contains(&*mutant.file) || (there.contains(mutant) && !which(mutant, *outcome))
        });
    }

    /// Adds what a run of cargo-mutants has left in its folder.
    ///
    /// # Errors
    /// When its files are not understood.
    pub(super) fn add_from(&mut self, folder: &Path, copy: &Path) -> Result<()> {
        let path = folder.join("outcomes.json");
        // A run that was ended before its first mutant has none.
        let Ok(text) = fs::read(&path) else {
            return Ok(());
        };
        let ran: Ran = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not understood", path.display()))?;
        let mut lines = Lines::of(copy);
        for one in ran.outcomes {
            let Scenario::Mutant(told) = one.scenario else {
                continue;
            };
            let outcome = match one.summary.as_str() {
                "CaughtMutant" => Outcome::Killed,
                "MissedMutant" => Outcome::Survived,
                "Timeout" => Outcome::TimedOut,
                "Unviable" => Outcome::Unviable,
                // It was interrupted.
                _ => continue,
            };
            self.0.insert(known(lines.mutant(told)?), outcome);
        }
        Ok(())
    }
}

/// As it is looked up: what cargo-mutants calls it is another with every edit.
fn known(mut mutant: Mutant) -> Mutant {
    mutant.name.clear();
    mutant
}

/// The mutants of `cargo mutants --list --json`.
///
/// # Errors
/// When it is not understood.
pub(super) fn listed(text: &str, copy: &Path) -> Result<Vec<Mutant>> {
    let told: Vec<Told> =
        serde_json::from_str(text).context("the list of mutants is not understood")?;
    let mut lines = Lines::of(copy);
    told.into_iter().map(|told| lines.mutant(told)).collect()
}

/// Makes `cargo mutants --iterate` leave out what is known: it reads the names of those that it need not run in the
/// folder of the run before.
///
/// # Errors
/// When the folder cannot be written.
pub(super) fn say_what_to_leave_out(
    folder: &Path,
    mutants: &[Mutant],
    outcomes: &Outcomes,
) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let known = mutants
        .iter()
        .filter(|mutant| outcomes.of(mutant).is_some());
    let names: String = known.map(|mutant| format!("{}\n", mutant.name)).collect();
    Ok(fs::write(folder.join("caught.txt"), names)?)
}

/// The sources that mutants are told of.
struct Lines<'a> {
    copy: &'a Path,
    files: HashMap<String, Vec<String>>,
}

impl<'a> Lines<'a> {
    fn of(copy: &'a Path) -> Self {
        Self {
            copy,
            files: HashMap::new(),
        }
    }

    fn mutant(&mut self, told: Told) -> Result<Mutant> {
        let Told { name, file, span } = told;
        if !self.files.contains_key(&file) {
            let text = fs::read_to_string(self.copy.join(&file)).with_context(|| file.clone())?;
            let lines = text.lines().map(|line| line.trim().to_owned());
            self.files.insert(file.clone(), lines.collect());
        }
        let lines = &self.files[&file];
        let Place { line, column } = span.start;
        let before = lines
            .get(..line)
            .context("a mutant behind its file's end")?;
        let (text, before) = before.split_last().context("a mutant without a line")?;
        let place = format!("{file}:{line}:{column}: ");
        Ok(Mutant {
            change: name.strip_prefix(&place).unwrap_or(&name).to_owned(),
            line: text.clone(),
            column,
            nth: before.iter().filter(|other| *other == text).count(),
            name,
            file,
        })
    }
}

// What cargo-mutants writes, as far as it is read.

#[derive(Deserialize)]
struct Ran {
    outcomes: Vec<RanOne>,
}

#[derive(Deserialize)]
struct RanOne {
    scenario: Scenario,
    summary: String,
}

#[derive(Deserialize)]
enum Scenario {
    Baseline,
    Mutant(Told),
}

#[derive(Deserialize)]
struct Told {
    name: String,
    file: String,
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Place,
}

#[derive(Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: &str = "replace < with <= in f";

    fn told(line: usize) -> String {
        format!(
            r#"{{"name": "a.rs:{line}:3: {CHANGE}", "file": "a.rs", "span": {{"start": {{"line": {line}, "column": 3}}}}}}"#
        )
    }

    #[test]
    fn what_was_found_is_known_behind_an_edit_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("a.rs"), "x\n  a < b\n  a < b\n").unwrap();
        let ran = format!(
            r#"{{"outcomes": [
                {{"scenario": "Baseline", "summary": "Success"}},
                {{"scenario": {{"Mutant": {}}}, "summary": "CaughtMutant"}},
                {{"scenario": {{"Mutant": {}}}, "summary": "MissedMutant"}}]}}"#,
            told(2),
            told(3)
        );
        fs::write(folder.join("outcomes.json"), ran).unwrap();
        let mut outcomes = Outcomes::default();
        outcomes.add_from(folder, folder).unwrap();
        let kept = folder.join("kept.jsonl");
        outcomes.write(&kept).unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap().lines().count(), 2);
        assert_eq!(Outcomes::read(&kept).unwrap(), outcomes);

        fs::write(folder.join("a.rs"), "new\nx\n  a < b\n  a < b\n a < c\n").unwrap();
        let list = format!("[{}, {}, {}]", told(3), told(4), told(5));
        let mutants = listed(&list, folder).unwrap();
        let found: Vec<_> = mutants.iter().map(|mutant| outcomes.of(mutant)).collect();
        assert_eq!(
            found,
            [Some(Outcome::Killed), Some(Outcome::Survived), None]
        );
        assert_eq!(mutants[1].change, CHANGE);

        let out = folder.join("mutants.out");
        say_what_to_leave_out(&out, &mutants, &outcomes).unwrap();
        let left_out = fs::read_to_string(out.join("caught.txt")).unwrap();
        assert_eq!(left_out.lines().count(), 2);
        assert!(left_out.starts_with("a.rs:3:3: replace"), "{left_out}");

        // The code of another file is nothing to these.
        let of_others: Vec<_> = mutants
            .iter()
            .cloned()
            .map(|mutant| Mutant {
                file: "b.rs".to_owned(),
                ..mutant
            })
            .collect();
        outcomes.forget(&of_others, |_, _| true);
        outcomes.forget(&mutants, |_, _| false);
        assert_eq!(Outcomes::read(&kept).unwrap(), outcomes);
        let survived = |outcome| outcome == Outcome::Survived;
        outcomes.forget(&mutants, |survivor, outcome| {
            survived(outcome) && survivor.change != CHANGE
        });
        assert_eq!(outcomes.of(&mutants[1]), Some(Outcome::Survived));
        outcomes.forget(&mutants, |_, outcome| survived(outcome));
        assert_eq!(outcomes.of(&mutants[1]), None);
        assert_eq!(outcomes.of(&mutants[0]), Some(Outcome::Killed));
        outcomes.forget(&mutants[1..], |_, _| false);
        assert_eq!(outcomes, Outcomes::default());
    }
}
