//! `witness apply` and its target mysqld are killed repeatedly, with every workload and policy. In the end the target has every
//! transaction once: its GTIDs and table checksums are equal to the source's.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::mysqld::workload::{Load, Workload};
use witness_tests::Pair;

use crate::SCENES;

const LOAD: Load = Load {
    transactions: 1_500,
    clients: 6,
    seed: 7,
};
/// How long the applier runs before each kill, in milliseconds and in order.
const KILLS: [u64; 6] = [60, 25, 140, 90, 200, 40];

fn kill_and_finish(workload: Workload, arguments: &[&str]) {
    kill_and_finish_on(Pair::new().unwrap(), workload, arguments);
}

fn kill_and_finish_on(mut pair: Pair, workload: Workload, arguments: &[&str]) {
    workload.prepare(&pair.source).unwrap();
    workload.run(&pair.source, LOAD).unwrap();
    let mut killed = 0;
    for (at, after) in KILLS.into_iter().enumerate() {
        let after = Duration::from_millis(after);
        killed += u32::from(!pair.apply_and_kill(arguments, after).unwrap());
        if at % 2 == 1 {
            pair.target.kill().unwrap();
            pair.target.start().unwrap();
        }
    }
    assert!(killed > 0, "it was always too fast to be killed");
    let report = pair.apply(arguments).unwrap();
    println!("{}, killed {killed} times: {report}", workload.key());
    pair.compare(workload.schema()).unwrap();
    // No transaction is left to apply.
    assert_eq!(pair.apply(arguments).unwrap()["transactions"], 0);
}

#[test]
fn oltp_write_only_in_the_logs_order() {
    let _turn = SCENES.take();
    kill_and_finish(Workload::OltpWriteOnly, &["--workers", "4"]);
}

/// The target has no binlog, so batches commit as one, in turns.
#[test]
fn oltp_write_only_with_turns() {
    let _turn = SCENES.take();
    let pair = Pair::with_target_arguments(["--skip-log-bin"]).unwrap();
    kill_and_finish_on(pair, Workload::OltpWriteOnly, &["--workers", "8"]);
}

/// Dozens of sessions are killed in any state: after they have taken their turn, while they wait for it, or while they write rows.
#[test]
fn sessions_that_pass_on_turns_are_killed() {
    let _turn = SCENES.take();
    let pair = Pair::with_target_arguments(["--skip-log-bin"]).unwrap();
    let workload = Workload::InsertOnly;
    workload.prepare(&pair.source).unwrap();
    let load = Load {
        transactions: 60_000,
        ..LOAD
    };
    workload.run(&pair.source, load).unwrap();
    let mut applier = pair.command(&["--workers", "8"]).unwrap().spawn().unwrap();
    let target = pair.target.client();
    let sessions = "SELECT id FROM performance_schema.processlist WHERE id <> CONNECTION_ID() AND db = 'information_schema' \
                    ORDER BY RAND() LIMIT 2";
    let mut killed = 0;
    let ended = loop {
        for row in target.sql(sessions).unwrap().0 {
            // The session may have ended already.
            killed += u32::from(target.sql(&format!("KILL {}", row[0])).is_ok());
        }
        let pause = Duration::from_millis(20);
        if let Some(ended) = testkit::bounded_run::wait_within(&mut applier, pause).unwrap() {
            break ended;
        }
    };
    assert!(ended.success(), "{ended}");
    let turns = pair.turns_taken().unwrap();
    println!("{killed} sessions were killed, {turns} turns were taken");
    assert!(killed > 5, "{killed} were killed");
    // At least the turns of the first measurement; afterwards the faster mode depends on the machine.
    assert!(turns > 20, "{turns} turns");
    pair.compare(workload.schema()).unwrap();
}

#[test]
fn adversarial_in_the_logs_order() {
    let _turn = SCENES.take();
    kill_and_finish(Workload::Adversarial, &["--workers", "4"]);
}

#[test]
fn new_order_payment_in_the_logs_order() {
    let _turn = SCENES.take();
    kill_and_finish(Workload::NewOrderPayment, &["--workers", "4"]);
}

#[test]
fn insert_only_by_transactions_with_a_binlog() {
    let _turn = SCENES.take();
    let arguments = [
        "--workers",
        "4",
        "--policy",
        "transactions",
        "--target-binlog",
    ];
    kill_and_finish(Workload::InsertOnly, &arguments);
}

/// The target dies while the applier runs. The applier waits for its restart, and continues.
#[test]
fn a_returning_target_is_continued() {
    let _turn = SCENES.take();
    let workload = Workload::NewOrderPayment;
    let mut pair = Pair::after(workload, LOAD).unwrap();
    let mut command = pair.command(&["--workers", "4", "--rate", "1000"]).unwrap();
    let mut applier = command.spawn().unwrap();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(400));
        pair.target.kill().unwrap();
        pair.target.start().unwrap();
    }
    let ended = testkit::bounded_run::wait_within(&mut applier, Duration::from_secs(60)).unwrap();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    pair.compare(workload.schema()).unwrap();
}

/// The target has no binlog and syncs its redo log at intervals. In a power cut it loses its last commits together with their GTIDs. The
/// applier applies them again.
#[test]
fn a_target_that_lost_its_last_commits_gets_them_again() {
    let _turn = SCENES.take();
    let workload = Workload::OltpWriteOnly;
    let lazy = [
        "--skip-log-bin",
        "--innodb-flush-log-at-trx-commit=2",
        "--innodb-flush-log-at-timeout=600",
    ];
    let mut pair = Pair::with_target_arguments(lazy).unwrap();
    workload.prepare(&pair.source).unwrap();
    workload.run(&pair.source, LOAD).unwrap();
    let arguments = ["--workers", "4"];
    let mut lost = 0;
    for more in [300, 10, 200, 50] {
        // At a low rate, because a check takes time, too, and there must be transactions left for the next attempt.
        let slowly = ["--workers", "4", "--rate", "500"];
        pair.apply_and_kill_behind(&slowly, more).unwrap();
        let before = pair.target.client().gtid_executed().unwrap();
        pair.target.cut_power().unwrap();
        pair.target.start().unwrap();
        let missing = format!("SELECT GTID_SUBTRACT('{before}', @@GLOBAL.gtid_executed) <> ''");
        lost += u32::from(pair.target.client().value(&missing).unwrap() == "1");
    }
    assert!(lost > 0, "nothing was ever lost");
    pair.apply(&arguments).unwrap();
    pair.compare(workload.schema()).unwrap();
}
