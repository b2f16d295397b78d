//! A follower stops at a statement that its server cannot execute. An operator executes another statement in its place, with the same
//! GTID. This affects only this statement and only this server.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::bounded_run::Finished;
use testkit::cluster::Cluster;
use witness_tests::replicaset;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

fn replaced(set: &Cluster, member: usize, gtid: &str, statement: &str) -> Finished {
    let config = set.config(member).display().to_string();
    let words = [
        "replace-statement",
        set.name(member),
        "--config",
        &config,
        "--gtid",
        gtid,
        "--statement",
        statement,
        "--yes",
    ];
    set.cli_within(&words, 2 * SOON).unwrap()
}

#[test]
fn a_statement_that_a_follower_cannot_execute_is_replaced_under_its_gtid() {
    let _turn = SCENES.take();
    let set = replicaset(2).unwrap();
    let primary = set.primary(SOON).unwrap();
    let follower = set.databases().into_iter().find(|one| *one != primary);
    let follower = follower.unwrap();
    set.follows(follower, SOON).unwrap();
    let at_follower = set.client(follower);
    at_follower
        .sql("SET sql_log_bin = 0; CREATE TABLE acked.taken (id INT)")
        .unwrap();
    let client = set.client(primary);
    client
        .sql("CREATE TABLE acked.taken (id INT PRIMARY KEY)")
        .unwrap();
    let uuid = client.variable("server_uuid").unwrap();
    let executed = client.gtid_executed().unwrap();
    let of_primary = executed.split(uuid.as_str()).nth(1).unwrap();
    let last = of_primary.split(',').next().unwrap();
    let last: u64 = last.rsplit([':', '-']).next().unwrap().parse().unwrap();
    let gtid = format!("{uuid}:{last}");
    client.sql("INSERT INTO acked.taken VALUES (1)").unwrap();
    let advice = set.eventually("it stops", SOON, || {
        let view = set.status(follower).ok()?;
        let trouble = view["mysql"]["trouble"].as_str()?.to_owned();
        (trouble.contains(&gtid) && trouble.contains("replace-statement")).then_some(trouble)
    });
    println!("{}", advice.unwrap());

    let replacement = "ALTER TABLE acked.taken ADD PRIMARY KEY (id)";
    let another = format!("{uuid}:{}", last + 1);
    for (member, gtid) in [(follower, another.as_str()), (primary, gtid.as_str())] {
        let refused = replaced(&set, member, gtid, replacement);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(4), "{said}");
    }
    let refused = replaced(&set, follower, &gtid, "ALTER TABLE acked.nothing FORCE");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("did not execute the statement"), "{said}");

    let done = replaced(&set, follower, &gtid, replacement);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}\n{}", set.words());
    set.follows(follower, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
    let again = replaced(&set, follower, &gtid, replacement);
    assert_eq!(again.status.code(), Some(4), "it follows");
}
