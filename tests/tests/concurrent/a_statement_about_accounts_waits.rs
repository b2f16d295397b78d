//! While a statement that changes accounts waits for its ACK, mysqld blocks all logins. If the member has lost its dump by then, it can
//! neither open it again nor query the waiting commits. It kills mysqld. The next start removes transactions that the ring lacks.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, Step};
use rustix::process::Signal;
use testkit::cluster::Cluster;
use testkit::wait::eventually;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

/// While `CREATE USER` waits at the old primary, another database member is elected. The old primary must follow it nevertheless.
#[test]
fn an_old_primary_that_accepts_no_login_follows_the_new_one() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| {
        options.with_heartbeat(Duration::from_millis(500))
    })
    .unwrap();
    set.begins_at_the_first(SOON).unwrap();

    for member in [1, 2, 3] {
        set.signal(member, Signal::STOP).unwrap();
    }
    let waits = waiting_account(set.server(0).socket());
    no_login_succeeds(&set.server(0).socket());
    // The other members elect a leader. The old primary's member detects that when it continues.
    set.signal(0, Signal::STOP).unwrap();
    for member in [1, 2, 3] {
        set.signal(member, Signal::CONT).unwrap();
    }
    assert_eq!(set.primary(SOON).unwrap(), 3);
    let began = Instant::now();
    set.signal(0, Signal::CONT).unwrap();
    set.follows(0, SOON).unwrap();
    println!("the old primary follows {:?} later", began.elapsed());
    match waits.join().unwrap() {
        Err(_) => was_killed_once(&set),
        // Entries sent to the other members before they were stopped may have arrived. Then these members have the entry, and have
        // acknowledged it.
        Ok(()) => {
            let there = set
                .client(3)
                .value("SELECT COUNT(*) FROM mysql.user WHERE user = 'waits'");
            assert_eq!(
                there.unwrap(),
                "1",
                "answered, and the ring does not have it"
            );
        }
    }

    set.client(3)
        .sql("INSERT INTO acked.rows VALUES (2, 0, 'after')")
        .unwrap();
    set.equal("acked", SOON).unwrap();
}

/// The member of the only database dies while `CREATE USER` waits there, and restarts. No other member can be the primary, so it becomes
/// the primary again.
#[test]
fn a_primary_that_accepts_no_login_commits_again_without_a_successor() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(1, |options| {
        options
            .with("mysql", "demote_after = \"2s\"")
            .with_heartbeat(Duration::from_millis(500))
    })
    .unwrap();
    for member in [1, 2] {
        set.signal(member, Signal::STOP).unwrap();
    }
    let waits = waiting_account(set.server(0).socket());
    no_login_succeeds(&set.server(0).socket());
    set.kill(0).unwrap();
    for member in [1, 2] {
        set.signal(member, Signal::CONT).unwrap();
    }
    let began = Instant::now();
    set.start(0).unwrap();
    set.primary(SOON).unwrap();
    println!("the primary is open again {:?} later", began.elapsed());
    let told = waits.join().unwrap();
    assert!(told.is_err(), "no replica acknowledged it: {told:?}");
    was_killed_once(&set);
    set.client(0)
        .sql("INSERT INTO acked.rows VALUES (2, 0, 'after')")
        .unwrap();
}

fn was_killed_once(set: &Cluster) {
    let said = set.output(0);
    assert!(said.contains("no login succeeds"), "{said}");
    let kills = said.matches("mysqld is killed and started again").count();
    assert_eq!(kills, 1, "{said}");
}

/// Runs `CREATE USER` in a thread, which returns the client's result.
fn waiting_account(socket: PathBuf) -> JoinHandle<Result<(), String>> {
    std::thread::spawn(move || {
        block_on(async {
            let mut session = open(&socket, SOON).await.unwrap();
            let told = session
                .query_within("CREATE USER waits IDENTIFIED BY 'x'", 3 * SOON)
                .await;
            told.map(drop).map_err(|error| error.to_string())
        })
    })
}

/// Waits until mysqld sends its handshake but does not finish the login.
fn no_login_succeeds(socket: &Path) {
    let refused = |error| {
        matches!(
            error,
            LinkError::Timeout {
                step: Step::Authentication,
                ..
            }
        )
    };
    let waits = || block_on(open(socket, Duration::from_secs(1))).is_err_and(refused);
    eventually("no client can log in", SOON, waits).unwrap();
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

async fn open(socket: &Path, limit: Duration) -> Result<Connection, LinkError> {
    let mut options = ConnectOptions::new(Endpoint::unix(socket), "root", "");
    options.timeouts.connect = limit;
    Connection::open(&options).await
}
