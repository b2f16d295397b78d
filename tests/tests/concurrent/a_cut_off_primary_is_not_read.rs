//! A primary is cut off from its ring, with open sessions and a waiting commit. Ordinary accounts are blocked when the lease and the
//! documented grace period have passed. They are admitted again when the server follows or is the primary.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use mysql_link::{Connection, LinkError};
use rustix::process::Signal;
use testkit::cluster::{Cluster, ClusterOptions};
use witness_tests::{Writers, client_session, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// `mysql.fence_after` of this ring.
const GRACE: Duration = Duration::from_secs(2);
/// The lease that results from the heartbeats of this ring.
const LEASE: Duration = Duration::from_millis(1500);
/// The most time between a member's last report and its death. It reports every 200 ms, and the grace period begins with the last report.
const LAST_WORD: Duration = Duration::from_millis(500);
/// Additional time for a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// Sets long heartbeats, because a busy machine must not cause an election.
fn unhurried(options: ClusterOptions) -> ClusterOptions {
    options.with_heartbeat(Duration::from_secs(1))
}

#[test]
fn readers_of_a_primary_that_is_cut_off_are_kept_off() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| {
        unhurried(options.with("mysql", "fence_after = \"2s\""))
    })
    .unwrap();
    set.follows(3, SOON).unwrap();
    let writers = Writers::of(&set, 2, 0);
    writers.wait_for_more(20, SOON).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut session = runtime.block_on(open(&set.server(0).socket())).unwrap();

    // All other members are stopped, as in a network partition. The primary's clients are on its side of the partition.
    for member in [1, 2, 3] {
        set.signal(member, Signal::STOP).unwrap();
    }
    let cut_off = Instant::now();
    let bound = LEASE + GRACE + SLACK;
    let mut answered = cut_off;
    while cut_off.elapsed() < bound {
        let read = runtime.block_on(session.query("SELECT COUNT(*) FROM acked.rows"));
        match read {
            Ok(_) => answered = Instant::now(),
            Err(_) => break,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = answered - cut_off;
    let refused = runtime.block_on(open(&set.server(0).socket()));
    println!("the last answer {took:?} after the partition; the grace period is {GRACE:?}");
    let refused = refused.map(drop).map_err(|error| error.to_string());
    assert!(
        matches!(&refused, Err(error) if error.contains("offline mode")),
        "reads continue {:?} after the partition, with a lease of {LEASE:?} and {GRACE:?} of grace: {refused:?}",
        cut_off.elapsed()
    );
    assert!(took >= GRACE, "the grace period is kept");
    // An administrator can still log in, and a commit waits.
    let waits = set.client(0).status("Rpl_semi_sync_source_wait_sessions");
    assert_ne!(waits.unwrap(), "0");
    let status = set.get(0, "/status").unwrap().json().unwrap();
    assert!(
        status["mysql"]["offline"]
            .as_str()
            .unwrap()
            .contains("no quorum"),
        "{status}"
    );

    for member in [1, 2, 3] {
        set.signal(member, Signal::CONT).unwrap();
    }
    writers.wait_for_more(50, SOON).unwrap();
    let written = writers.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    written.ensure_all_are_in(&set.client(0)).unwrap();
    // Whichever member is the primary now, clients are admitted at both servers.
    for member in set.databases() {
        lets_clients_in(&runtime, &set, member);
    }
}

/// Regression: the member was stopped while its lease ended, and began the grace period with its first check after that.
#[test]
fn the_grace_period_of_readers_begins_with_the_end_of_the_lease() {
    let _turn = SCENES.take();
    const LONG_GRACE: Duration = Duration::from_secs(8);
    // The guard acts when it has received no report for the lease plus the grace period.
    const STANDS_STILL: Duration = Duration::from_secs(7);
    let set = replicaset_with(2, |options| {
        unhurried(options.with("mysql", "fence_after = \"8s\""))
    })
    .unwrap();
    set.follows(3, SOON).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut session = runtime.block_on(open(&set.server(0).socket())).unwrap();
    let cut_off = Instant::now();
    for member in [1, 2, 3, 0] {
        set.signal(member, Signal::STOP).unwrap();
    }
    std::thread::sleep(STANDS_STILL);
    set.signal(0, Signal::CONT).unwrap();
    let limit = STANDS_STILL + LONG_GRACE;
    runtime.block_on(last_answer(&mut session, limit));
    let took = cut_off.elapsed();
    println!("the last answer {took:?} after the partition; the grace period is {LONG_GRACE:?}");
    for member in [1, 2, 3] {
        set.signal(member, Signal::CONT).unwrap();
    }
    // On a busy machine, the lease that ends may be the previous one.
    assert!(took + LEASE >= LONG_GRACE, "the grace period is kept");
    let bound = LEASE + LONG_GRACE + SLACK;
    assert!(
        took < bound,
        "the last answer came {took:?} after the partition; a lease and the grace period are {:?}",
        LEASE + LONG_GRACE
    );
}

/// Acts as systemd with `Type=notify`, `WatchdogSec` and `WatchdogSignal=SIGKILL`: receives the member's notifications, and kills the
/// member with its mysqld when they stop.
#[test]
fn a_member_that_hangs_is_noticed_by_its_service_manager_and_its_mysqld_is_not_read() {
    let _turn = SCENES.take();
    const WATCHDOG: Duration = Duration::from_secs(2);
    let mut set = replicaset_with(2, unhurried).unwrap();
    set.follows(3, SOON).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(WATCHDOG)).unwrap();
    let heard = || {
        let mut words = [0; 64];
        let length = manager.recv(&mut words).ok()?;
        Some(String::from_utf8_lossy(&words[..length]).into_owned())
    };
    set.kill(0).unwrap();
    let socket = format!("NOTIFY_SOCKET={}", path.display());
    let watchdog = format!("WATCHDOG_USEC={}", WATCHDOG.as_micros());
    set.start_wrapped(0, &["env", &socket, &watchdog]).unwrap();
    assert_eq!(heard().as_deref(), Some("READY=1"));
    let until = Instant::now() + 2 * WATCHDOG;
    while Instant::now() < until {
        assert_eq!(heard().as_deref(), Some("WATCHDOG=1"));
    }
    // Either another member has become the primary, or this member restarted before the others detected its end. No client may write before
    // this is known, because on a follower an administrator's row would be errant.
    if set.primary(SOON).unwrap() != 0 {
        set.follows(0, SOON).unwrap();
        set.promote("db-1", SOON).unwrap();
    }
    write(&set, 0, 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut session = runtime.block_on(open(&set.server(0).socket())).unwrap();

    // Read the notifications received until now.
    manager.set_nonblocking(true).unwrap();
    while heard().is_some() {}
    manager.set_nonblocking(false).unwrap();
    set.signal(0, Signal::STOP).unwrap();
    let hung = Instant::now();
    while heard().is_some() {}
    let noticed = hung.elapsed();
    set.kill_host(0).unwrap();
    let read = runtime.block_on(session.query("SELECT COUNT(*) FROM acked.rows"));
    assert!(
        read.is_err(),
        "it answers readers although its member hangs"
    );
    let took = hung.elapsed();
    println!(
        "noticed {noticed:?} after the hang, not read after {took:?}; WatchdogSec is {WATCHDOG:?}"
    );
    assert!(took < WATCHDOG + SLACK, "{took:?}");

    assert_eq!(set.primary(SOON).unwrap(), 3);
    set.start(0).unwrap();
    set.equal("acked", SOON).unwrap();
    let rows = set.client(0).value("SELECT COUNT(*) FROM acked.rows");
    assert_eq!(rows.unwrap(), "1");
}

/// Only the guard that the member itself started watches the member here.
#[test]
fn a_member_that_hangs_or_stays_dead_has_a_guard_that_keeps_readers_off() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |options| {
        unhurried(options.with("mysql", "fence_after = \"2s\""))
    })
    .unwrap();
    set.follows(3, SOON).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bound = LEASE + GRACE + SLACK;

    // The member hangs. The other members continue.
    write(&set, 0, 1);
    let mut session = runtime.block_on(open(&set.server(0).socket())).unwrap();
    set.signal(0, Signal::STOP).unwrap();
    let took = runtime.block_on(last_answer(&mut session, bound));
    println!("the member hangs: the last answer {took:?} afterwards");
    assert!(
        took.is_some_and(|took| took >= GRACE),
        "reads continue {bound:?} after the member hung: {took:?}"
    );
    refuses_clients(&runtime, &set, 0);
    assert_eq!(set.primary(SOON).unwrap(), 3);
    write(&set, 3, 2);
    set.signal(0, Signal::CONT).unwrap();
    set.follows(0, SOON).unwrap();
    lets_clients_in(&runtime, &set, 0);

    // The member dies and is not restarted.
    let mut session = runtime.block_on(open(&set.server(3).socket())).unwrap();
    set.kill(3).unwrap();
    let took = runtime.block_on(last_answer(&mut session, bound));
    println!("the member is dead: the last answer {took:?} afterwards");
    assert!(
        took.is_some_and(|took| took >= GRACE - LAST_WORD),
        "reads continue {bound:?} after the member died: {took:?}"
    );
    refuses_clients(&runtime, &set, 3);
    set.start(3).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 0);
    set.follows(3, SOON).unwrap();
    lets_clients_in(&runtime, &set, 3);

    // If a member restarts in time, its guard does not act.
    let mut session = runtime.block_on(open(&set.server(0).socket())).unwrap();
    set.kill(0).unwrap();
    set.start(0).unwrap();
    if set.primary(SOON).unwrap() == 0 {
        std::thread::sleep(bound);
        runtime.block_on(session.query("SELECT 1")).unwrap();
    }

    // A case in which mysqld accepts no statement either.
    let primary = set.primary(SOON).unwrap();
    write(&set, primary, 3);
    let mut session = runtime
        .block_on(open(&set.server(primary).socket()))
        .unwrap();
    set.server(primary).signal(Signal::STOP).unwrap();
    set.signal(primary, Signal::STOP).unwrap();
    let hung = Instant::now();
    let read = runtime.block_on(session.query_within("SELECT 1", SOON));
    println!("both hang: {read:?} after {:?}", hung.elapsed());
    assert!(
        read.is_err() && hung.elapsed() < Duration::from_secs(30),
        "mysqld was not killed within {:?}",
        hung.elapsed()
    );
    set.signal(primary, Signal::CONT).unwrap();
    set.follows(primary, SOON).unwrap();
    lets_clients_in(&runtime, &set, primary);
    set.equal("acked", SOON).unwrap();
    let rows = set.client(0).value("SELECT COUNT(*) FROM acked.rows");
    assert_eq!(rows.unwrap(), "3");
}

/// Returns for how long a session gets answers; `None` if it is not closed within the limit.
async fn last_answer(session: &mut Connection, limit: Duration) -> Option<Duration> {
    let began = Instant::now();
    let mut answered = Duration::ZERO;
    while began.elapsed() < limit {
        if session.query("SELECT 1").await.is_err() {
            return Some(answered);
        }
        answered = began.elapsed();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// Checks that the server admits no client from now on, and that the member reports the reason. If a login is in progress when mysqld ends
/// its sessions, it ends without an error message.
fn refuses_clients(runtime: &tokio::runtime::Runtime, set: &Cluster, member: usize) {
    let began = Instant::now();
    loop {
        let socket = set.server(member).socket();
        let refused = runtime.block_on(open(&socket)).err();
        let refused = refused.expect("it refuses clients").to_string();
        if refused.contains("offline mode") {
            return;
        }
        assert!(began.elapsed() < SLACK, "{refused}");
    }
}

fn lets_clients_in(runtime: &tokio::runtime::Runtime, set: &Cluster, member: usize) {
    let open = || runtime.block_on(open(&set.server(member).socket()));
    set.eventually("it lets clients in", SOON, open).unwrap();
}

/// Writes one more row, after waiting until the primary accepts writes.
fn write(set: &Cluster, member: usize, number: u32) {
    let insert = format!("INSERT INTO acked.rows VALUES ({number}, 0, 'one')");
    let write = || set.client(member).sql(&insert);
    set.eventually("it takes a row", SOON, write).unwrap();
}

async fn open(socket: &Path) -> Result<Connection, LinkError> {
    client_session(socket, Duration::from_secs(5)).await
}
