//! Runs the commands of the runbooks and of the upgrade page, in order and unchanged, in a ring with real mysqlds. Only paths and the
//! members' addresses are replaced.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use testkit::cluster::Cluster;
use testkit::documentation::witness_commands;
use witness_tests::replicaset;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const REFUSED: i32 = 4;

/// Names of members and machines that this ring lacks. Other tests add, move and remove members, and apply files.
const ELSEWHERE: [&str; 5] = ["db-3", "witness-5", "witness-6", "witness-9", "10.0."];

/// Returns a command's expected exit code; `None` if the command is not run.
fn expected(words: &[&str]) -> Option<i32> {
    let names_others = |word: &&str| ELSEWHERE.iter().any(|other| word.contains(other));
    match words {
        _ if words.iter().any(names_others) => None,
        // This command never ends.
        ["status", "--watch"] => None,
        // This ring does not have regions with these names.
        ["quorum", "set", ..] => None,
        // This ring has no archive. The test of the page about the archive runs these commands.
        ["archive", ..] => None,
        // Refused, because the ring does not need it: a majority answers.
        ["quorum", "fix", ..] => Some(REFUSED),
        _ => Some(0),
    }
}

/// Replaces the paths in a word of a page by those of this ring.
fn here(word: &str, set: &Cluster) -> String {
    let log = format!("{}/", set.directory(0).display());
    let word = word.replace("/var/lib/witness/", &log);
    let word = word.replace("/root/", &log);
    word.replace("/var/lib/witness", &set.directory(0).display().to_string())
}

/// Adds the members' addresses to commands that query members, and the member's file to commands that read a disk.
fn with_config(words: &[String], config: &Path) -> Vec<String> {
    let mut command = &witness_bin::cli::command();
    for word in words {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let takes_it = command
        .get_arguments()
        .any(|argument| argument.get_long() == Some("config"));
    let mut words = words.to_vec();
    if takes_it {
        words.extend(["--config".to_owned(), config.display().to_string()]);
    }
    words
}

#[test]
fn every_command_of_the_runbooks_ends_as_documented() {
    let _turn = SCENES.take();
    let set = replicaset(2).unwrap();
    set.follows(3, SOON).unwrap();
    let mut commands: Vec<Vec<String>> = witness_commands()
        .unwrap()
        .into_iter()
        .filter(|command| {
            command
                .page
                .components()
                .any(|part| part.as_os_str() == "runbooks" || part.as_os_str() == "upgrades.md")
        })
        .map(|command| command.words[1..].to_vec())
        .collect();
    // Commands that remove a member are last.
    commands.sort_by_key(|words| words.iter().any(|word| word == "remove"));
    let (mut run, mut wrong, mut left_out) = (BTreeSet::new(), Vec::new(), 0);
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let Some(code) = expected(&words) else {
            left_out += 1;
            continue;
        };
        if !run.insert(command.clone()) {
            continue;
        }
        // Each page must find a healthy ring with a member for a switchover, and a pause if the page describes how to end one.
        match words[..] {
            ["resume"] => drop(set.cli_of(0, &["pause"]).unwrap()),
            ["switchover", "db-1", ..] => lead(&set, "db-2"),
            ["switchover" | "reprovision" | "mock-election", ..] => lead(&set, "db-1"),
            _ => {}
        }
        let replaced: Vec<String> = command.iter().map(|word| here(word, &set)).collect();
        let arguments = with_config(&replaced, set.config(0));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let done = set.cli(&arguments).unwrap();
        if done.status.code() != Some(code) {
            let said = [done.stdout, done.stderr].concat();
            wrong.push(format!(
                "{command:?} ended with {}, and not with {code}: {}",
                done.status,
                String::from_utf8_lossy(&said)
            ));
        }
        if words[0] == "pause" {
            set.cli_of(0, &["resume"]).unwrap();
        }
    }
    println!("{} commands were run, {left_out} left out", run.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run.len() > 20, "{run:?}");
}

/// Makes a database member the leader, and waits until the other one's mysqld follows it.
fn lead(set: &Cluster, name: &str) {
    let (wanted, other) = match name {
        "db-1" => (0, 3),
        _ => (3, 0),
    };
    if set.primary(SOON).unwrap() != wanted {
        set.follows(wanted, SOON).unwrap();
        set.promote(name, SOON).unwrap();
    }
    set.follows(other, SOON).unwrap();
}
