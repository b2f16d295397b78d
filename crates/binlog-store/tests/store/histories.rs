//! Random histories of appends, truncations, rotations, purges, votes and restarts, compared with a model that is only a vector.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use crate::workload::{Model, Step, log_files, open_with, options, perform};
use binlog_store::{StoreOptions, VerifyAtStart};
use proptest::prelude::*;
use raft_types::{Entry, OpId};
use testkit::disk::{FaultyDisk, Survival};
use testkit::log_entries::{blank, membership, rotate, transaction};

#[derive(Debug, Clone)]
enum Act {
    /// Kinds of the entries to append: 0 blank, 1 membership, 2 rotate; any other number is a transaction of that many bytes.
    Append(Vec<u16>),
    /// Maximum number of entries to truncate.
    Truncate(usize),
    /// Maximum number of entries to purge.
    Purge(usize),
    NewTerm,
    /// Commits all entries except this many of the last ones.
    Commit(usize),
    Restart(Restart),
}

#[derive(Debug, Clone, Copy)]
enum Restart {
    InGoodOrder,
    PowerCut,
    PowerCutSeeded(u64),
    Killed,
}

fn act() -> impl Strategy<Value = Act> {
    let kind = prop_oneof![1 => 0_u16..3, 4 => 3_u16..2_000];
    prop_oneof![
        6 => prop::collection::vec(kind, 1..6).prop_map(Act::Append),
        2 => (1_usize..8).prop_map(Act::Truncate),
        1 => (1_usize..6).prop_map(Act::Purge),
        1 => Just(Act::NewTerm),
        2 => (0_usize..4).prop_map(Act::Commit),
        2 => prop_oneof![
            Just(Restart::InGoodOrder),
            Just(Restart::PowerCut),
            any::<u64>().prop_map(Restart::PowerCutSeeded),
            Just(Restart::Killed)
        ]
        .prop_map(Act::Restart),
    ]
}

fn entry(op_id: OpId, kind: u16) -> Entry {
    match kind {
        0 => blank(op_id),
        1 => membership(op_id, &[1, 2, op_id.index]),
        2 => rotate(op_id),
        bytes => transaction(op_id, usize::from(bytes)),
    }
}

/// The step for an act in the current state of the log.
fn steps(act: &Act, model: &Model, term: u64, committed: Option<OpId>) -> Option<Step> {
    let last = model
        .entries
        .last()
        .map(|entry| OpId::from(entry.log_id))
        .or(model.floor);
    match act {
        Act::Append(kinds) => {
            let first = last.map_or(0, |last| last.index + 1);
            let entries = kinds
                .iter()
                .zip(first..)
                .map(|(kind, index)| entry(OpId::new(term, index), *kind));
            Some(Step::Append(entries.collect()))
        }
        Act::Truncate(count) => {
            let uncommitted = |entry: &&Entry| {
                committed.is_none_or(|committed| entry.log_id.index > committed.index)
            };
            let count = model
                .entries
                .iter()
                .rev()
                .filter(uncommitted)
                .count()
                .min(*count);
            let stay = model.entries.len() - count;
            let keep = stay
                .checked_sub(1)
                .map(|at| OpId::from(model.entries[at].log_id))
                .or(model.floor);
            (count > 0).then_some(Step::Truncate(keep))
        }
        Act::Purge(count) => {
            let up_to = model
                .entries
                .iter()
                .take(*count)
                .map(|entry| OpId::from(entry.log_id));
            up_to
                .filter(|op_id| Some(*op_id) <= committed)
                .last()
                .map(Step::Purge)
        }
        Act::NewTerm => Some(Step::Vote(term + 1)),
        Act::Commit(but) => {
            let at = model.entries.len().checked_sub(but + 1)?;
            Some(Step::Committed(OpId::from(model.entries[at].log_id)))
        }
        Act::Restart(_) => None,
    }
}

fn play(acts: &[Act], options: &StoreOptions) -> Result<(), TestCaseError> {
    let disk = FaultyDisk::new();
    let mut model = Model::default();
    let (mut term, mut committed) = (1, None);
    let (mut store, _) = open_with(&disk, options.clone()).unwrap();
    perform(&mut store, &Step::Vote(1)).unwrap();
    model.acknowledge(&Step::Vote(1));

    for act in acts {
        if let Act::Restart(restart) = act {
            match restart {
                Restart::InGoodOrder => {
                    drop(store);
                    disk.power_cycle(Survival::Nothing);
                }
                Restart::PowerCut => disk.power_cycle(Survival::Nothing),
                Restart::PowerCutSeeded(seed) => disk.power_cycle(Survival::Seeded(*seed)),
                Restart::Killed => disk.restart_process(),
            }
            let (again, report) = open_with(&disk, options.clone()).unwrap();
            store = again;
            model
                .check(&store)
                .map_err(|what| TestCaseError::fail(format!("{what} ({report})")))?;
            continue;
        }
        let Some(step) = steps(act, &model, term, committed) else {
            continue;
        };
        match step {
            Step::Vote(next) => term = next,
            Step::Committed(op_id) => committed = committed.max(Some(op_id)),
            _ => {}
        }
        perform(&mut store, &step)
            .map_err(|error| TestCaseError::fail(format!("{step:?}: {error}")))?;
        model.acknowledge(&step);
        model
            .check(&store)
            .map_err(|what| TestCaseError::fail(format!("after {step:?}: {what}")))?;
    }

    // A member that appends only the final entries has the same files.
    if model.floor.is_none() {
        let straight = FaultyDisk::new();
        let (mut other, _) = open_with(&straight, options.clone()).unwrap();
        if !model.entries.is_empty() {
            perform(&mut other, &Step::Append(model.entries.clone())).unwrap();
        }
        drop((store, other));
        prop_assert!(
            log_files(&disk) == log_files(&straight),
            "the files are not those of the outcome alone"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_log_equals_the_model(acts in prop::collection::vec(act(), 1..40)) {
        play(&acts, &options())?;
    }

    #[test]
    fn and_so_it_is_without_a_cache_and_with_a_quick_start(acts in prop::collection::vec(act(), 1..40)) {
        let options = StoreOptions {
            cache_bytes: 1,
            read_batch_bytes: 500,
            verify_at_start: VerifyAtStart::Recent,
            ..options()
        };
        play(&acts, &options)?;
    }
}
