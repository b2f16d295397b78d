//! The operator's hook commands run when the primary changes, with the event in their environment. A hook that hangs is killed and run
//! again until it succeeds. Neither clients nor changes of the primary wait for it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use testkit::cluster::Cluster;
use testkit::wait::eventually;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

/// Creates a script that appends its environment to a file, one line for each event, and then hangs if the test requests it. Each line
/// is one write, because all members run the script concurrently.
fn script(folder: &Path) -> String {
    let path = folder.join("hook");
    let text = format!(
        "#!/bin/sh\n\
         line=$(env | grep '^WITNESS_' | sort | tr '\\n' '|')\n\
         echo \"$line\" >> {told}\n\
         echo \"noted $WITNESS_EVENT\"\n\
         if [ -e {hang} ]; then sleep 1000; fi\n\
         echo \"$line\" >> {done}\n",
        told = folder.join("told").display(),
        hang = folder.join("hang").display(),
        done = folder.join("done").display(),
    );
    std::fs::write(&path, text).unwrap();
    format!("[\"/bin/sh\", {path:?}]")
}

/// Returns the events, with their values, of the commands that began (`told`) or succeeded (`done`) so far.
fn told(folder: &Path, file: &str) -> Vec<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    let event = |line: &str| {
        let pairs = line.split('|').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    text.lines().map(event).collect()
}

fn wait_for(
    set: &Cluster,
    (folder, file): (&Path, &str),
    event: &str,
    member: &str,
    primary: &str,
) -> BTreeMap<String, String> {
    let what = format!("{event} of {member} is reported");
    let found = set.eventually(&what, SOON, || {
        let is = |values: &BTreeMap<String, String>| {
            values["WITNESS_EVENT"] == event
                && values["WITNESS_MEMBER"] == member
                && values["WITNESS_PRIMARY"] == primary
        };
        let told = told(folder, file);
        let found = told.iter().rev().find(|values| is(values)).cloned();
        found.ok_or_else(|| format!("{told:#?}"))
    });
    found.unwrap()
}

/// Waits until a member's status reports `expected` as its first failing hook; null for no failing hook.
fn failing_hook(set: &Cluster, index: usize, expected: &serde_json::Value) {
    let named = set.eventually("the status names the failing hook", SOON, || {
        let hooks = set.get(index, "/status").unwrap().json().unwrap()["hooks"].clone();
        match hooks["failing"][0]["hook"] == *expected {
            true => Ok(()),
            false => Err(hooks.to_string()),
        }
    });
    named.unwrap();
}

#[test]
fn every_change_of_the_primary_runs_hooks_and_waits_for_none() {
    let _turn = SCENES.take();
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let script = script(folder);
    let mut set = replicaset_with(2, |options| {
        options
            .with("hooks", format!("on_primary = {script}"))
            .with("hooks", format!("on_demoted = {script}"))
            .with("hooks", format!("on_primary_changed = {script}"))
            .with("hooks", "timeout = \"2s\"")
    })
    .unwrap();
    let first = wait_for(&set, (folder, "told"), "primary", "db-1", "db-1");
    assert_eq!(first["WITNESS_RING"], "test");
    assert_eq!(first["WITNESS_REGION"], "here");
    assert!(first["WITNESS_TERM"].parse::<u64>().unwrap() > 0);
    let port = set.client(0).value("SELECT @@port").unwrap();
    assert_eq!(first["WITNESS_MYSQL_PORT"], port);
    // A witness runs the hook, too.
    let seen = wait_for(
        &set,
        (folder, "told"),
        "primary_changed",
        "witness-1",
        "db-1",
    );
    assert_eq!(seen["WITNESS_PRIMARY_HOST"], "127.0.0.1");

    // From now on each hook hangs until it is killed. The primary can still move.
    std::fs::write(folder.join("hang"), "").unwrap();
    set.follows(3, SOON).unwrap();
    set.kill_host(0).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 3);
    let moved = wait_for(
        &set,
        (folder, "told"),
        "primary_changed",
        "witness-1",
        "db-2",
    );
    assert_eq!(moved["WITNESS_PREVIOUS_PRIMARY"], "db-1");
    wait_for(&set, (folder, "told"), "primary", "db-2", "db-2");
    set.client(3)
        .sql("INSERT INTO acked.rows VALUES (1, 0, 'while hooks hang')")
        .unwrap();
    let killed = eventually("the hook is killed", SOON, || {
        let output = set.output(1);
        match output.contains("was killed after 2s") {
            true => Ok(()),
            false => Err(output),
        }
    });
    killed.unwrap();
    let metrics = set.get(1, "/metrics").unwrap().body;
    let failed = metrics
        .lines()
        .find(|line| line.starts_with("witness_hook_failures_total{"))
        .unwrap();
    assert!(!failed.ends_with(" 0"), "{failed}");
    failing_hook(&set, 3, &"on_primary".into());

    // When the hooks work again, the changes not reported yet are reported, by the new primary's member and by the others.
    std::fs::remove_file(folder.join("hang")).unwrap();
    wait_for(&set, (folder, "done"), "primary", "db-2", "db-2");
    wait_for(
        &set,
        (folder, "done"),
        "primary_changed",
        "witness-1",
        "db-2",
    );
    failing_hook(&set, 3, &serde_json::Value::Null);
    assert!(
        set.output(0).contains("noted primary"),
        "the command's words are in the member's log"
    );
}
