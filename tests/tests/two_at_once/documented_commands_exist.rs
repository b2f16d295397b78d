//! Each `witness …` command in the shell blocks of the documentation is one that the program's command line takes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

/// Every page of the documentation.
fn pages() -> Vec<PathBuf> {
    let root = testkit::checkout();
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "md" => pages.push(path),
                _ => {}
            }
        }
    }
    pages
}

/// The commands of a page's shell blocks, a line each; what is continued by a backslash is one line.
fn shell_lines(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut lines: Vec<String> = Vec::new();
    let (mut in_block, mut goes_on) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            in_block = line == "```sh";
            continue;
        }
        if !in_block {
            continue;
        }
        let part = line.trim_end_matches('\\');
        match lines.last_mut() {
            Some(begun) if goes_on => begun.push_str(part),
            _ => lines.push(part.to_owned()),
        }
        goes_on = line.ends_with('\\');
    }
    lines
}

/// The words of a command up to a pipe, a redirection or the next command.
fn words(line: &str) -> Vec<String> {
    const ENDS: [&str; 5] = ["|", ">", ">>", "&&", ";"];
    let words = shlex::split(line).unwrap_or_else(|| panic!("a quote is not closed: {line}"));
    let words = words.into_iter();
    words.take_while(|word| !ENDS.contains(&&**word)).collect()
}

#[test]
fn the_command_line_takes_every_command_of_the_documentation() {
    let mut commands = 0;
    for page in pages() {
        for line in shell_lines(&page) {
            let words = words(&line);
            if words.first().is_none_or(|word| word != "witness") {
                continue;
            }
            commands += 1;
            if let Err(error) = witness_bin::cli::command().try_get_matches_from(&words) {
                panic!("{}: `{line}`: {error}", page.display());
            }
        }
    }
    assert!(commands > 60, "only {commands} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    for line in [
        "witness explode db-1",
        "witness switchover db-2 --no-such-flag",
    ] {
        let parsed = witness_bin::cli::command().try_get_matches_from(words(line));
        assert!(parsed.is_err(), "{line}");
    }
}

#[test]
fn a_command_ends_where_the_shell_ends_it() {
    let line = "witness config init > witness.toml # \"comment\"";
    assert_eq!(words(line), ["witness", "config", "init"]);
    let quoted = words("witness pause --reason \"new disk\"");
    assert_eq!(quoted[3], "new disk");
}
