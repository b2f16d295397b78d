//! `cargo xtask put-back`: puts faults of the track record back and looks that they are found. A fault is put back by a patch of
//! `faults/`, which makes the product's code again what it was, or by a mutation of the simulator, which lets it meet what the
//! missing rule would have allowed.

mod page;
mod patch;
mod track_record;
mod without_a_patch;
mod work_tree;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::kept_seeds::today;
use crate::sim::{self, Build, Seeds};
use crate::test::BROKEN;
use page::{End, Page, Trial};
use patch::{FoundBy, Patch};
use track_record::Row;
use without_a_patch::Reason;
use work_tree::{Tested, WorkTree};

#[derive(Args)]
pub(crate) struct Options {
    /// Put these back
    #[arg(required_unless_present_any = ["list", "all", "simulator"])]
    names: Vec<String>,
    /// Print each row of the track record: what puts it back, and what finds it
    #[arg(long, conflicts_with_all = ["names", "all", "simulator"])]
    list: bool,
    /// Put all back
    #[arg(long, conflicts_with_all = ["names", "simulator"])]
    all: bool,
    /// Put back all that seeds of the simulator find
    #[arg(long, conflicts_with = "names")]
    simulator: bool,
    /// For how long seeds look for each
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// How many seeds at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// How many letters of a fault are enough to know it by.
const FIRST_WORDS: usize = 90;

/// What puts a fault back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Patch(Patch),
    /// This mutation of the simulator, from this seed on.
    Mutation(String, u64),
}

impl Way {
    fn name(&self) -> &str {
        match self {
            Self::Patch(patch) => &patch.name,
            Self::Mutation(name, _) => name,
        }
    }

    fn is_found_by_seeds(&self) -> bool {
        match self {
            Self::Patch(patch) => matches!(patch.found_by, FoundBy::Seeds { .. }),
            Self::Mutation(..) => true,
        }
    }

    fn found_by(&self) -> String {
        match self {
            Self::Patch(patch) => patch.found_by.to_string(),
            Self::Mutation(name, from) => format!("simulator: --mutate {name} --from {from}"),
        }
    }
}

/// A row of the track record, and what puts it back.
struct Fault {
    row: Row,
    ways: Vec<Way>,
    /// Why nothing does.
    why_none: Option<String>,
}

/// `cargo xtask put-back`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let faults = faults_of(&testkit::checkout())?;
    let docs = testkit::checkout().join("docs");
    if options.list {
        let page = Page::in_folder(&docs)?;
        print!("{}", listed(&faults, |name| page.last_of(name)));
        return Ok(());
    }
    let chosen = chosen(&faults, options)?;
    let is_name = |name: &str| ways(&faults).any(|(_, way)| way.name() == name);
    let tree = WorkTree::open()?;
    let sound = match chosen.iter().any(|(_, way)| way.is_found_by_seeds()) {
        true => Some(sound_simulator(&tree)?),
        false => None,
    };
    let mut missed = Vec::new();
    for (row, way) in &chosen {
        let began = Instant::now();
        let tried = put_back(&tree, sound.as_deref(), way, options);
        tree.take_back()?;
        let (end, seconds) = tried.with_context(|| way.name().to_owned())?;
        let trial = Trial {
            name: way.name().to_owned(),
            date: today(),
            fault: row.first_words(FIRST_WORDS),
            by: way.found_by(),
            end,
            seconds,
        };
        let with_the_build = began.elapsed().as_secs_f64();
        println!("{} ({with_the_build:.0} s with the build)", trial.told());
        if !trial.is_found() {
            missed.push(trial.name.clone());
        }
        // Read anew each time: somebody else may have tried others meanwhile.
        let mut page = Page::in_folder(&docs)?;
        page.keep(is_name);
        page.add(trial)?;
    }
    println!("{} of {} found", chosen.len() - missed.len(), chosen.len());
    if !missed.is_empty() {
        bail!("not found: {}", missed.join(", "));
    }
    Ok(())
}

/// The simulator of what was committed: what fails in it as well has found no fault.
fn sound_simulator(tree: &WorkTree) -> Result<PathBuf> {
    match tree.simulator("simulator-sound")? {
        Ok(program) => Ok(program),
        Err(words) => bail!("what was committed does not build: {words}"),
    }
}

/// All rows of a checkout's track record, with what puts each back.
fn faults_of(checkout: &Path) -> Result<Vec<Fault>> {
    let page = checkout.join("docs/track-record.md");
    let text = fs::read_to_string(&page).with_context(|| format!("no {}", page.display()))?;
    let folder = checkout.join("faults");
    together(
        track_record::rows(&text)?,
        patch::all_in(&folder)?,
        &without_a_patch::all_in(&folder)?,
    )
}

fn together(rows: Vec<Row>, patches: Vec<Patch>, reasons: &[Reason]) -> Result<Vec<Fault>> {
    let mut by_row: BTreeMap<String, Vec<Way>> = BTreeMap::new();
    for patch in patches {
        let row = patch.row_in(&rows)?.fault.clone();
        by_row.entry(row).or_default().push(Way::Patch(patch));
    }
    let mut why_none = BTreeMap::new();
    for reason in reasons {
        let row = reason.row_in(&rows)?;
        why_none.insert(row.fault.clone(), reason.why.clone());
    }
    let faults = rows.into_iter().map(|row| {
        let mut ways = by_row.remove(&row.fault).unwrap_or_default();
        for name in row.mutations(BROKEN.map(|(_, _, name)| name)) {
            let from = BROKEN.iter().find(|one| one.2 == name);
            ways.push(Way::Mutation(name.to_owned(), from.map_or(1, |one| one.1)));
        }
        let why_none = why_none.remove(&row.fault);
        Fault {
            row,
            ways,
            why_none,
        }
    });
    Ok(faults.collect())
}

/// Every way to put something back, once: several rows may name one mutation.
fn ways(faults: &[Fault]) -> impl Iterator<Item = (&Row, &Way)> {
    let mut seen = Vec::new();
    let all = faults
        .iter()
        .flat_map(|fault| fault.ways.iter().map(|way| (&fault.row, way)));
    all.filter(move |(_, way)| {
        let is_new = !seen.contains(&way.name());
        seen.push(way.name());
        is_new
    })
}

fn chosen<'a>(faults: &'a [Fault], options: &Options) -> Result<Vec<(&'a Row, &'a Way)>> {
    if options.all {
        return Ok(ways(faults).collect());
    }
    if options.simulator {
        let found = ways(faults).filter(|(_, way)| way.is_found_by_seeds());
        return Ok(found.collect());
    }
    let named = |name: &String| {
        let way = ways(faults).find(|(_, way)| way.name() == name);
        way.with_context(|| format!("nothing is called `{name}`; `--list` prints all names"))
    };
    options.names.iter().map(named).collect()
}

/// Two lines for each way to put a row back, or for the row where there is none, and how many there are of each. `last` says what
/// came of a name the last time.
fn listed(faults: &[Fault], last: impl Fn(&str) -> String) -> String {
    let (mut text, mut counts) = (String::new(), [0; 4]);
    for fault in faults {
        let row = format!("{} {}", fault.row.date, fault.row.first_words(FIRST_WORDS));
        let mut line = |name: &str, kind: &str, found_by: &str| {
            text += &format!("{name:<44}  {kind:<8}  {row}\n{:44}  {found_by}\n", "");
        };
        for way in &fault.ways {
            let kind = match way {
                Way::Patch(_) => "patch",
                Way::Mutation(..) => "mutation",
            };
            let mut found_by = format!("{}; {}", way.found_by(), last(way.name()));
            if let Way::Patch(Patch {
                beyond: Some(why), ..
            }) = way
            {
                found_by += &format!("; beyond the simulator: {why}");
            }
            line(way.name(), kind, &found_by);
        }
        let kind = match fault.ways.first() {
            Some(Way::Patch(_)) => 0,
            Some(Way::Mutation(..)) => 1,
            None if fault.row.is_none_of_the_product() => {
                line("-", "none", "no fault of the product");
                2
            }
            None => {
                let why = fault.why_none.as_deref().unwrap_or("nobody says why");
                let pinned_by = &fault.row.pinned_by;
                line(
                    "-",
                    "none",
                    &format!("pinned by {pinned_by}; no patch: {why}"),
                );
                3
            }
        };
        counts[kind] += 1;
    }
    let [patches, mutations, of_others, none] = counts;
    text + &format!(
        "{} rows: {patches} put back by a patch, {mutations} by a mutation of the simulator; {of_others} were no faults of the product; {none} are not put back\n",
        faults.len()
    )
}

/// Puts one back and looks for it: how that ended, and after how many seconds, without the build.
fn put_back(
    tree: &WorkTree,
    sound: Option<&Path>,
    way: &Way,
    options: &Options,
) -> Result<(End, f64)> {
    let not_tried = |why: String| Ok((End::NotTried(why), 0.0));
    let (scenario, mutation, from) = match way {
        Way::Mutation(name, from) => (None, Some(name), *from),
        Way::Patch(patch) => {
            if let Err(error) = tree.put_in(&patch.path) {
                return not_tried(format!("it does not apply: {error:#}"));
            }
            match &patch.found_by {
                FoundBy::Seeds { scenario, from } => (scenario.as_ref(), None, *from),
                FoundBy::Test(arguments) => return tried_twice(tree, || tree.test(arguments)),
                FoundBy::Task(arguments) => return tried_twice(tree, || tree.task(arguments)),
            }
        }
    };
    let sound = sound.context("the simulator of what was committed was not built")?;
    let program: PathBuf = match way {
        Way::Mutation(..) => sound.to_owned(),
        Way::Patch(_) => match tree.simulator("simulator-with-a-fault")? {
            Ok(program) => program,
            Err(words) => return not_tried(format!("it does not compile: {words}")),
        },
    };
    let began = Instant::now();
    let seeds = Seeds {
        range: from..u64::MAX,
        until: Some(began + Duration::from_secs_f64(options.minutes * 60.0)),
        jobs: options.jobs.max(1),
        build: Build::Dev,
        scenario: scenario.cloned(),
        mutation: mutation.cloned(),
    };
    let (sum, failure) = sim::run_all(&program, &seeds)?;
    let seconds = began.elapsed().as_secs_f64();
    let Some(failure) = failure else {
        return Ok((End::NotFound { seeds: sum.runs }, seconds));
    };
    // What fails without the fault as well has not found it.
    let alone = Seeds {
        range: failure.seed..failure.seed + 1,
        until: None,
        mutation: None,
        ..seeds
    };
    if let (_, Some(other)) = sim::run_all(sound, &alone)? {
        return not_tried(format!(
            "seed {} fails without the fault as well: {}",
            other.seed, other.words
        ));
    }
    let end = End::Seed {
        seed: failure.seed,
        seeds: sum.runs,
        words: failure.words,
    };
    Ok((end, seconds))
}

/// Runs a test with the fault in the tree, and without it where it fails: what fails then as well has not found it.
fn tried_twice(
    tree: &WorkTree,
    test: impl Fn() -> Result<(Tested, Duration)>,
) -> Result<(End, f64)> {
    let (tested, took) = test()?;
    let not_tried = |why: String| (End::NotTried(why), 0.0);
    let seconds = took.as_secs_f64();
    Ok(match tested {
        Tested::Failed => {
            tree.take_back()?;
            match test()?.0 {
                Tested::Passed => (End::Test, seconds),
                _ => not_tried("the test fails without the fault as well".to_owned()),
            }
        }
        Tested::Passed => (End::NotFound { seeds: 0 }, seconds),
        Tested::DoesNotCompile(words) => not_tried(format!("it does not compile: {words}")),
        Tested::NoSuchTest => not_tried("there is no test of this name".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn checkout() -> Vec<Fault> {
        faults_of(&testkit::checkout()).unwrap()
    }

    /// The product has changed where a fault was: whoever changed it puts the fault into the code as it is now.
    #[test]
    fn every_patch_applies() {
        let checkout = testkit::checkout();
        let mut patches = 0;
        for fault in self::checkout() {
            for way in fault.ways {
                let Way::Patch(patch) = way else { continue };
                let checked = Command::new("git")
                    .args(["apply", "--check"])
                    .arg(&patch.path)
                    .current_dir(&checkout)
                    .output()
                    .unwrap();
                assert!(
                    checked.status.success(),
                    "{} does not apply any more. Put the fault of its row into the code as it is now, take `git diff` for the \
                     patch's diff, and look that `cargo xtask put-back {}` finds it:\n{}",
                    patch.path.display(),
                    patch.name,
                    String::from_utf8_lossy(&checked.stderr)
                );
                patches += 1;
            }
        }
        assert!(patches > 0);
    }

    #[test]
    fn every_row_is_listed_and_every_name_is_one() {
        let faults = checkout();
        let text = listed(&faults, |_| String::new());
        for fault in &faults {
            let row = format!("{} {}", fault.row.date, fault.row.first_words(FIRST_WORDS));
            assert!(text.contains(&row), "{row}");
        }
        let mut patches: Vec<_> = ways(&faults).map(|(_, way)| way.name()).collect();
        let all = patches.len();
        patches.sort_unstable();
        patches.dedup();
        assert_eq!(patches.len(), all);
        let mutations = BROKEN.map(|one| one.2);
        for fault in &faults {
            for way in &fault.ways {
                if let Way::Patch(patch) = way {
                    assert!(!mutations.contains(&patch.name.as_str()), "{}", patch.name);
                }
            }
        }
    }

    /// Who cures a fault puts it into a patch, or says why that cannot be.
    #[test]
    fn every_row_can_be_put_back_or_has_a_reason() {
        for fault in checkout() {
            let needs_none = !fault.ways.is_empty() || fault.row.is_none_of_the_product();
            assert_ne!(
                needs_none,
                fault.why_none.is_some(),
                "a patch in faults/ or a line in faults/without-a-patch.md, and not both: {}",
                fault.row.first_words(FIRST_WORDS)
            );
        }
    }

    const ROWS: &str = "\
        | 2026-11-20 | A ring could be founded | seen | consensus `a_founder` |\n\
        | 2026-11-20 | A voter forgot | seen | simulator `--mutate forget-the-lease` |\n\
        | 2026-11-20 | A checker counted | nothing: a fault of the checker | simulator `x` |\n\
        | 2026-11-20 | A plugin was looked for | seen | mysqld-controller `a_mysqld_says` |\n";

    fn four() -> Vec<Fault> {
        let folder = tempfile::tempdir().unwrap();
        let words = "Row: A ring could\nFound by: simulator: --scenario purges\nBeyond the simulator: said so\n\ndiff --git a/x b/x\n";
        fs::write(folder.path().join("a-founder.patch"), words).unwrap();
        let patches = patch::all_in(folder.path()).unwrap();
        let page = "* `A plugin was`: nothing shows it.\n";
        fs::write(folder.path().join("without-a-patch.md"), page).unwrap();
        let reasons = without_a_patch::all_in(folder.path()).unwrap();
        together(track_record::rows(ROWS).unwrap(), patches, &reasons).unwrap()
    }

    #[test]
    fn the_list_says_what_puts_each_row_back() {
        let text = listed(&four(), |_| "not tried yet".to_owned());
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("a-founder ") && lines[0].contains(" patch "));
        assert_eq!(
            lines[1],
            "simulator: --scenario purges --from 1; not tried yet; beyond the simulator: said so"
        );
        assert!(lines[2].starts_with("forget-the-lease ") && lines[2].contains(" mutation "));
        assert_eq!(
            lines[3],
            "simulator: --mutate forget-the-lease --from 209; not tried yet"
        );
        assert_eq!(lines[5], "no fault of the product");
        assert_eq!(
            lines[7],
            "pinned by mysqld-controller `a_mysqld_says`; no patch: nothing shows it."
        );
        assert!(lines[8].starts_with("4 rows: 1 put back by a patch, 1 by a mutation"));
    }

    #[test]
    fn names_are_chosen_from_what_there_is() {
        let faults = four();
        let chosen = |options: &Options| {
            let chosen = chosen(&faults, options).map_err(|error| error.to_string())?;
            let names = chosen.iter().map(|(_, way)| way.name().to_owned());
            Ok::<_, String>(names.collect::<Vec<_>>())
        };
        let mut options = Options {
            names: vec!["forget-the-lease".to_owned()],
            list: false,
            all: false,
            simulator: false,
            minutes: 1.0,
            jobs: 1,
        };
        assert_eq!(chosen(&options).unwrap(), ["forget-the-lease"]);
        options.names = vec!["forget".to_owned()];
        assert!(chosen(&options).unwrap_err().contains("`forget`"));
        options.all = true;
        assert_eq!(chosen(&options).unwrap(), ["a-founder", "forget-the-lease"]);
    }

    #[test]
    fn a_patch_without_a_row_is_an_error() {
        let faults = four();
        let Some(Way::Patch(patch)) = faults[0].ways.first().cloned() else {
            panic!("a patch was put there")
        };
        let others = track_record::rows(ROWS).unwrap().split_off(1);
        assert!(together(others, vec![patch], &[]).is_err());
    }
}
