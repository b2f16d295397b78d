//! `GET /cluster` returns the addresses at which clients reach members and mysqlds. An order to a follower is redirected to the leader.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use testkit::cluster::{
    Cluster, ClusterOptions, MemberDatabase, MemberOptions, http_get, http_order,
};

use crate::program::Scratch;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_member_knows_where_clients_go_and_where_the_leader_is() {
    let scratch = Scratch::new();
    scratch.write("token", "secret\n");
    let program = Path::new(env!("CARGO_BIN_EXE_witness"));
    let database = MemberDatabase::Embedded {
        program: program.to_owned(),
    };
    let members = vec![
        MemberOptions::new("db-1", "here", database),
        MemberOptions::new("w-1", "here", MemberDatabase::Nothing),
        MemberOptions::new("w-2", "here", MemberDatabase::Nothing),
    ];
    let token = scratch.join("token");
    let options = ClusterOptions {
        folder: Some(scratch.path().to_owned()),
        ..ClusterOptions::of(members)
            .with("raft", "heartbeat = \"100ms\"\nlease = \"600ms\"")
            .with("log", "disk_reserve_bytes = 0")
            .with(
                "mysql",
                "port = 1\nconnect_address = \"db.example.org:3306\"",
            )
            .with("http", format!("token_file = {token:?}"))
    };
    let mut cluster = Cluster::prepare(program, options).expect("the ring's files");
    cluster.bootstrap().expect("the ring starts");

    let api = |at: usize| format!("http://{}", cluster.http(at));
    let told = |at: usize| {
        let answer = http_get(cluster.http(at), "/cluster").ok()?.json().ok()?;
        let members = answer["members"].as_array()?.iter();
        let members = members.map(|member| {
            let of = |key: &str| member[key].clone();
            json!([
                of("role"),
                of("state"),
                of("api_url"),
                of("host"),
                of("port")
            ])
        });
        Some((answer["leader"].clone(), members.collect::<Vec<_>>()))
    };
    let expected = vec![
        json!(["leader", "running", api(0), "db.example.org", 3306]),
        json!(["witness", "running", api(1), null, null]),
        json!(["witness", "running", api(2), null, null]),
    ];
    let same = cluster.eventually("all say the same", PATIENCE, || {
        (0..3).all(|at| told(at) == Some((json!(1), expected.clone())))
    });
    same.expect("it comes about");

    let sent_on = http_order(cluster.http(1), "/resume", "secret", "").expect("an answer");
    assert_eq!(sent_on.status, 307, "{sent_on:?}");
    assert_eq!(sent_on.json().expect("JSON")["leader"], 1, "{sent_on:?}");
    let location = sent_on.location.as_deref();
    assert_eq!(location, Some(format!("{}/resume", api(0)).as_str()));
    let done = http_order(cluster.http(0), "/resume", "secret", "").expect("an answer");
    assert_eq!(done.status, 412, "failover is not paused: {done:?}");

    // A stopped witness is still listed, with its last address.
    cluster.kill(2).expect("a running process");
    let silent = cluster.eventually("it is silent", PATIENCE, || {
        (0..2).all(|at| {
            let answer = http_get(cluster.http(at), "/cluster").expect("an answer");
            let member = &answer.json().expect("JSON")["members"][2];
            member["state"] == "silent" && member["api_url"] == expected[2][2]
        })
    });
    silent.expect("it comes about");
}
