//! Small logs with their expected safe rows. Random logs are compared with a model that checks all pairs of rows.
//!
//! In scripts, `a` is an exclusive use of key a and `a?` a shared one; rows are separated by `|`, and `-` is a row without keys.

use proptest::prelude::*;

use super::*;
use crate::keys::{Access, KeyHash};

type Row = Vec<KeyAccess>;

fn key(name: &str) -> KeyAccess {
    let (name, access) = match name.strip_suffix('?') {
        Some(name) => (name, Access::Shared),
        None => (name, Access::Exclusive),
    };
    let hash = name
        .bytes()
        .fold(7, |hash, byte| hash * 31 + u64::from(byte));
    KeyAccess {
        key: KeyHash(hash),
        access,
    }
}

fn rows(text: &str) -> Vec<Row> {
    let row = |row: &str| match row.trim() {
        "-" => Vec::new(),
        keys => keys.split_whitespace().map(key).collect(),
    };
    text.split('|').map(row).collect()
}

/// Runs a script with the commands `admit rows`, `barrier`, `committed T -> T…` and `safe rows-of-T1 rows-of-T2 …`. In the last
/// one, `0!` is a transaction without safe rows that may begin.
fn play(policy: Policy, script: &str) {
    let mut scheduler = Scheduler::new(policy, BatchSeq(1));
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (input, output) = rest.split_once("->").unwrap_or((rest, ""));
        let numbers = |text: &str| -> Vec<u64> {
            let words = text.split_whitespace();
            words.map(|word| word.parse().unwrap()).collect()
        };
        let expected: Vec<BatchSeq> = numbers(output).into_iter().map(BatchSeq).collect();
        match command {
            "admit" => {
                scheduler.admit(rows(rest).iter().map(Vec::as_slice));
            }
            "barrier" => {
                scheduler.admit_barrier();
            }
            "committed" => {
                let further = scheduler.committed(BatchSeq(numbers(input)[0]));
                assert_eq!(further, expected, "{policy:?}: {line}");
            }
            "safe" => {
                for (seq, expected) in (1..).map(BatchSeq).zip(rest.split_whitespace()) {
                    let safe = match scheduler.safe_rows(seq) {
                        0 if scheduler.may_begin(seq) => "0!".to_owned(),
                        safe => safe.to_string(),
                    };
                    assert_eq!(safe, expected, "{policy:?}: {line}: {seq:?}");
                }
            }
            _ => panic!("no such command: {line}"),
        }
    }
}

#[test]
fn keys_are_dropped_after_their_last_use() {
    let mut scheduler = Scheduler::new(Policy::Rows, BatchSeq(1));
    for keys in ["a | b", "b"] {
        scheduler.admit(rows(keys).iter().map(Vec::as_slice));
    }
    let mut in_use = vec![scheduler.queues.by_key.len()];
    for seq in [1, 2] {
        scheduler.committed(BatchSeq(seq));
        in_use.push(scheduler.queues.by_key.len());
    }
    assert_eq!(in_use, [2, 1, 0]);
}

#[test]
fn policies_have_the_names_of_their_option() {
    let names = Policy::ALL.map(Policy::name);
    assert_eq!(names, ["rows", "transactions", "serial"]);
}

#[test]
fn rows_wait_only_for_commits_of_earlier_conflicting_writes() {
    play(
        Policy::Rows,
        "admit a | hot
         admit b | hot
         admit c | hot | d
         safe 2 1 1
         committed 1 -> 2
         safe 0 2 1
         committed 2 -> 3
         safe 0 0 3
         committed 3 ->",
    );
}

#[test]
fn transactions_wait_as_a_whole() {
    play(
        Policy::Transactions,
        "admit a | hot
         admit b | hot
         admit c
         safe 2 0 1
         committed 3 ->
         committed 1 -> 2
         safe 0 2",
    );
}

#[test]
fn in_series_each_waits_for_the_commit_before() {
    play(
        Policy::Serial,
        "admit a
         admit b | c
         safe 1 0
         committed 1 -> 2
         safe 0 2",
    );
}

#[test]
fn shared_uses_are_concurrent_and_exclusive_ones_alone() {
    play(
        Policy::Rows,
        "admit p
         admit p? a
         admit p? b
         admit p
         admit p?
         safe 1 0 0 0 0
         committed 1 -> 2 3
         safe 0 1 1 0 0
         committed 3 ->
         committed 2 -> 4
         safe 0 0 0 1 0
         committed 4 -> 5",
    );
}

#[test]
fn a_transaction_does_not_wait_for_itself() {
    // One transaction uses a key first shared and then exclusively (with and without other transactions in between), first
    // exclusively and then shared, and twice in the same way.
    play(
        Policy::Rows,
        "admit p? u
         admit p? | p | p? | p
         admit q? | q | q? | q
         safe 1 1 4
         committed 1 -> 2
         safe 0 4 4",
    );
}

#[test]
fn children_wait_for_the_commit_of_their_parent_and_not_for_each_other() {
    play(
        Policy::Rows,
        "admit p | a p? | b p?
         admit c p?
         admit d p?
         admit p
         safe 3 0 0 0
         committed 1 -> 2 3
         committed 2 ->
         committed 3 -> 4",
    );
}

#[test]
fn a_barrier_runs_alone() {
    for policy in Policy::ALL {
        play(
            policy,
            "admit a
             barrier
             admit a | b
             admit c
             safe 1 0 0 0
             committed 1 -> 2
             safe 0 0! 0 0",
        );
    }
    play(
        Policy::Rows,
        "barrier
         admit a | b
         admit c
         barrier
         safe 0! 0 0 0
         committed 1 -> 2 3
         safe 0 2 1 0
         committed 3 ->
         committed 2 -> 4",
    );
}

#[test]
fn a_transaction_without_rows_may_begin_immediately() {
    let mut scheduler = Scheduler::new(Policy::Rows, BatchSeq(9));
    let seq = scheduler.admit(std::iter::empty());
    assert_eq!((seq, scheduler.may_begin(seq)), (BatchSeq(9), true));
    assert_eq!(scheduler.committed(seq), []);
    assert_eq!(scheduler.base(), BatchSeq(10));
    assert!(!scheduler.may_begin(seq));
}

/// The model's state of a transaction.
#[derive(Debug)]
struct Known {
    rows: Vec<Row>,
    barrier: bool,
    committed: bool,
}

/// Computes how many rows of a transaction are safe, and whether the transaction may begin, by comparing all pairs of rows.
fn model(log: &[Known], at: usize, policy: Policy) -> (usize, bool) {
    let (one, before) = (&log[at], &log[..at]);
    if one.committed {
        return (0, false);
    }
    let alone = one.barrier || policy == Policy::Serial;
    let open = before.iter().filter(|other| !other.committed);
    if open.clone().any(|other| alone || other.barrier) {
        return (0, false);
    }
    let conflicts = |row: &Row| {
        open.clone()
            .flat_map(|other| other.rows.iter().flatten())
            .any(|theirs| {
                row.iter().any(|ours| {
                    ours.key == theirs.key
                        && (ours.access == Access::Exclusive || theirs.access == Access::Exclusive)
                })
            })
    };
    let total = one.rows.len();
    let safe = match policy {
        Policy::Serial => total,
        Policy::Rows => one.rows.iter().position(conflicts).unwrap_or(total),
        Policy::Transactions if one.rows.iter().any(conflicts) => 0,
        Policy::Transactions => total,
    };
    (safe, safe > 0 || total == 0)
}

fn some_rows() -> impl Strategy<Value = Option<Vec<Row>>> {
    let access = prop_oneof![Just(Access::Shared), Just(Access::Exclusive)];
    let use_of_key = (0_u64..5, access).prop_map(|(key, access)| KeyAccess {
        key: KeyHash(key),
        access,
    });
    let row = prop::collection::vec(use_of_key, 0..4);
    // One in twelve transactions is a barrier.
    prop_oneof![
        11 => prop::collection::vec(row, 0..6).prop_map(Some),
        1 => Just(None),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn safe_rows_equal_the_model_at_every_moment(
        transactions in prop::collection::vec(some_rows(), 1..14),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        in_log_order: bool,
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut scheduler = Scheduler::new(policy, BatchSeq(1));
        let mut coming = transactions.into_iter().peekable();
        let mut log: Vec<Known> = Vec::new();
        let view = |log: &[Known]| -> Vec<(usize, bool)> {
            (0..log.len()).map(|at| model(log, at, policy)).collect()
        };
        loop {
            let before = view(&log);
            // Transactions that a worker could commit now. If `in_log_order` is false, commits may be reported in another order
            // than the log's.
            let commits = (0..log.len()).filter(|at| {
                let (safe, may_begin) = before[*at];
                let turn = !in_log_order || log[..*at].iter().all(|other| other.committed);
                may_begin && safe == log[*at].rows.len() && turn
            });
            let commits: Vec<usize> = commits.collect();
            let further = match random.choice(&commits) {
                Some(at) if coming.peek().is_none() || random.bool() => {
                    log[*at].committed = true;
                    scheduler.committed(BatchSeq(*at as u64 + 1))
                }
                _ => {
                    let Some(rows) = coming.next() else { break };
                    let barrier = rows.is_none();
                    let rows = rows.unwrap_or_default();
                    let seq = if barrier {
                        scheduler.admit_barrier()
                    } else {
                        scheduler.admit(rows.iter().map(Vec::as_slice))
                    };
                    log.push(Known { rows, barrier, committed: false });
                    prop_assert_eq!(seq, BatchSeq(log.len() as u64));
                    Vec::new()
                }
            };
            let now = view(&log);
            for (at, (safe, may_begin)) in now.iter().enumerate() {
                let seq = BatchSeq(at as u64 + 1);
                prop_assert_eq!((scheduler.safe_rows(seq), scheduler.may_begin(seq)), (*safe, *may_begin), "{:?}", seq);
            }
            // The result contains every transaction that can proceed further. It may contain others.
            for (at, (was, is)) in before.iter().zip(&now).enumerate() {
                let seq = BatchSeq(at as u64 + 1);
                let more = is.0 > was.0 || (is.1 && !was.1);
                prop_assert!(!more || further.contains(&seq), "{:?} was not named", seq);
                prop_assert!(more || !further.contains(&seq) || is.0 == 0, "{:?} was named without need", seq);
            }
        }
        prop_assert!(log.iter().all(|one| one.committed), "a transaction waits indefinitely: {log:?}");
        prop_assert_eq!(scheduler.queues.by_key.len(), 0);
        prop_assert_eq!(scheduler.base(), scheduler.next());
    }
}
