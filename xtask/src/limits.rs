//! The first step of `cargo xtask test`: checks size, import cycles, words and commit subjects against the limits in `xtask/size.toml`.

mod cycles;
mod functions;
mod size;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use testkit::bounded_run;

use crate::limits::size::Size;

const LIMIT: Duration = Duration::from_secs(60);
const LONGEST_SUBJECT: usize = 72;

/// The contents of `xtask/size.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    product: Size,
    testkit: Size,
    lab: Size,
    xtask: Size,
    functions: Functions,
    words: Words,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Functions {
    too_long: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    phrases: u64,
    markdown: usize,
    subjects_since: String,
}

/// Checks everything, and reports all exceeded limits.
///
/// # Errors
/// The list of exceeded limits.
pub(crate) fn check() -> Result<()> {
    let root = testkit::checkout();
    let text = fs::read_to_string(root.join("xtask/size.toml"))?;
    let limits: Limits = toml::from_str(&text).context("xtask/size.toml")?;
    let mut over = Vec::new();
    let mut limit = |what: String, found: usize, most: usize| {
        if found > most {
            over.push(format!("{what}: {found}, and at most {most} are allowed"));
        }
    };
    let files = sources(&root)?;
    let crates = |file: &Path| file.starts_with("crates");
    let testkit = |file: &Path| file.starts_with("crates/testkit");
    let product = |file: &Path| crates(file) && !testkit(file);
    let size_of = |is_in: &dyn Fn(&Path) -> bool| size::sum(&root, files.iter(), is_in);
    for (name, found, most) in [
        ("product", size_of(&product)?, limits.product),
        ("testkit", size_of(&testkit)?, limits.testkit),
        ("lab", size_of(&|file| file.starts_with("lab"))?, limits.lab),
        (
            "xtask",
            size_of(&|file| file.starts_with("xtask"))?,
            limits.xtask,
        ),
    ] {
        eprintln!("{name}: {} lines in {} files", found.lines, found.files);
        limit(format!("lines of {name}"), found.lines, most.lines);
        limit(format!("files of {name}"), found.files, most.files);
    }
    for (name, found) in cycles::files_in_cycles(&root, &files)? {
        limit(
            format!(
                "files of {name} that import each other ({})",
                found.join(" ")
            ),
            found.len(),
            0,
        );
    }
    let of_product = files.iter().filter(|file| product(file));
    let long = functions::too_long(&root, of_product)?;
    limit(
        format!(
            "functions of more than {} lines ({})",
            functions::LONGEST,
            long.join(", ")
        ),
        long.len(),
        limits.functions.too_long,
    );
    let markdown = markdown_words(&root)?;
    eprintln!("Markdown: {markdown} words");
    limit(
        "words of Markdown".to_owned(),
        markdown,
        limits.words.markdown,
    );
    over.extend(subjects(&root, &limits.words.subjects_since)?);
    over.extend(phrases(&root, limits.words.phrases)?);
    ensure!(
        over.is_empty(),
        "above xtask/size.toml:\n{}",
        over.join("\n")
    );
    Ok(())
}

/// Returns the Rust files without tests, by their paths in the checkout.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = git(root, &["ls-files", "--", "*.rs"])?;
    let is_source = |file: &Path| {
        let is_test = |part: &std::path::Component<'_>| {
            part.as_os_str() == "tests" || part.as_os_str() == "examples"
        };
        file.file_name().is_some_and(|name| name != "tests.rs")
            && !file.components().any(|part| is_test(&part))
    };
    let files = listed.lines().map(PathBuf::from);
    Ok(files
        .filter(|file| is_source(file) && root.join(file).is_file())
        .collect())
}

fn markdown_words(root: &Path) -> Result<usize> {
    let listed = git(root, &["ls-files", "--", "*.md"])?;
    let mut words = 0;
    for file in listed
        .lines()
        .map(|file| root.join(file))
        .filter(|file| file.is_file())
    {
        words += fs::read_to_string(&file)?.split_whitespace().count();
    }
    Ok(words)
}

/// Returns a line for each commit with a subject that is not of the form `component: imperative`.
fn subjects(root: &Path, since: &str) -> Result<Vec<String>> {
    // A shallow clone may not contain the commit `since`.
    let range = format!("{since}..HEAD");
    let Ok(listed) = git(root, &["log", "--no-merges", "--format=%s", &range]) else {
        eprintln!("commit subjects: {since} is not in this clone");
        return Ok(Vec::new());
    };
    let wrong = listed.lines().filter(|subject| !is_subject(subject));
    Ok(wrong
        .map(|subject| {
            format!("commit subject `{subject}`: write `component: imperative`, at most {LONGEST_SUBJECT} characters")
        })
        .collect())
}

fn is_subject(subject: &str) -> bool {
    let Some((component, rest)) = subject.split_once(": ") else {
        return false;
    };
    let is_component =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_,- ()".contains(c);
    let begins_well = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '`';
    subject.chars().count() <= LONGEST_SUBJECT
        && component.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && component.chars().all(is_component)
        && rest.starts_with(begins_well)
}

fn phrases(root: &Path, most: u64) -> Result<Option<String>> {
    let mut check = Command::new("python3");
    check.current_dir(root).arg("xtask/words/check");
    check.args(["--max", &most.to_string()]);
    let finished = bounded_run::run("xtask/words/check", check, Vec::new(), LIMIT)?;
    let printed = String::from_utf8_lossy(&finished.stdout);
    let last = printed.lines().last().unwrap_or_default();
    eprintln!("{last}");
    if finished.status.success() {
        return Ok(None);
    }
    let errors = String::from_utf8_lossy(&finished.stderr);
    Ok(Some(format!(
        "{last}, and at most {most} are allowed: `xtask/words/check PATH` shows them {errors}"
    )))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(arguments);
    bounded_run::run("git", git, Vec::new(), LIMIT)?.into_text("git")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_name_a_component_and_are_short() {
        assert!(is_subject("consensus: end a lease early"));
        assert!(is_subject("applier, testkit: remove snapshots"));
        assert!(!is_subject("Consensus: end a lease early"));
        assert!(!is_subject("end a lease early"));
        assert!(!is_subject("consensus: End a lease early"));
        assert!(!is_subject(&format!("consensus: {}", "x".repeat(72))));
    }
}
