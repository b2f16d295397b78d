//! `SHUTDOWN` and `RESTART` by SQL, at a primary without a quorum while a commit waits: no client may receive a success.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::wait::eventually;
use witness_tests::{client_session, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_commit_that_waits_is_not_answered_by_a_shutdown() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| options.with_heartbeat(Duration::from_secs(1))).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    for member in [1, 2, 3] {
        set.signal(member, Signal::STOP).unwrap();
    }
    let waits = waiting_commit(set.server(0).socket());
    let count = || set.client(0).status("Rpl_semi_sync_source_wait_sessions");
    eventually("a commit waits", SOON, || count().unwrap() != "0").unwrap();
    // mysqld refuses RESTART, because it does not recognise a service manager when its member has started it.
    let refused = set.client(0).sql("RESTART").unwrap_err().to_string();
    assert!(refused.contains("3707"), "{refused}");
    assert_eq!(count().unwrap(), "1", "the commit waits as before");
    assert!(!waits.is_finished());
    let ordered = Instant::now();
    set.client(0).sql("SHUTDOWN").unwrap();
    let told = waits.join().unwrap();
    println!(
        "{:?} after SHUTDOWN the client received {told:?}",
        ordered.elapsed()
    );
    assert!(
        told.is_err(),
        "a commit that the ring does not have succeeded"
    );
    let said = set.output(0);
    assert!(
        said.contains("it is shutting down, this member did not ask for it"),
        "{said}"
    );

    for member in [1, 2, 3] {
        set.signal(member, Signal::CONT).unwrap();
    }
    set.equal("acked", SOON).unwrap();
    let insert = "INSERT INTO acked.rows VALUES (2, 0, 'after')";
    let primary = set.primary(SOON).unwrap();
    set.client(primary).sql(insert).unwrap();
    set.equal("acked", SOON).unwrap();
}

fn waiting_commit(socket: PathBuf) -> JoinHandle<Result<(), String>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut session = client_session(&socket, SOON).await.unwrap();
            let insert = "INSERT INTO acked.rows VALUES (1, 0, 'waits')";
            let told = session.execute(insert).await.map(drop);
            told.map_err(|error| error.to_string())
        })
    })
}
