//! How far a member's log agrees with another's: the question of a member that rejoins, and its answer. A member that rejoins after a quorum
//! was repaired without it may hold committed entries that the ring has given up. The engine would silently keep them, because it never
//! compares committed entries again.

use raft_types::{OpId, TermRun};
use serde::{Deserialize, Serialize};

use crate::election::put_back::Remembered;
use crate::engine;
use crate::engine::{Engine, Fault};

/// The log state of a member that rejoins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recollection {
    /// The runs of terms of its log, oldest first; only the newest if there are many.
    pub runs: Vec<TermRun>,
    /// The last entry that it recorded as committed.
    pub committed: Option<OpId>,
}

/// The most runs in a recollection: a call has room for twice as many, and given-up entries have the newest terms.
const MOST_RUNS: usize = 4096;

impl Recollection {
    /// A log with these runs of terms, oldest first, committed up to this entry.
    pub fn new(mut runs: Vec<TermRun>, committed: Option<OpId>) -> Self {
        runs.drain(..runs.len().saturating_sub(MOST_RUNS));
        Self { runs, committed }
    }

    /// The end of the log.
    pub fn last(&self) -> Option<OpId> {
        self.runs.last().map(|run| OpId::new(run.term, run.last))
    }
}

/// Another member's answer to a recollection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The last entry that both logs have.
    pub common: Option<OpId>,
    /// The end of its log.
    pub last: Option<OpId>,
    /// The last entry that it has recorded as committed.
    pub committed: Option<OpId>,
    /// The last purged entry of its log: earlier entries cannot be compared.
    pub purged: Option<OpId>,
    /// Its records about the asking member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Remembered>,
}

/// Compares a recollection with this member's log.
pub(crate) async fn compare(raft: &Engine, theirs: Recollection) -> Result<Agreement, Fault> {
    let common = raft.with_raft_state(move |state| {
        common_entry(&theirs.runs, |index| {
            state.log_ids.get(index).map(OpId::from)
        })
    });
    let common = common.await?;
    let progress = engine::progress(raft);
    Ok(Agreement {
        common,
        last: progress.last_log,
        committed: progress.applied,
        purged: progress.purged,
        remembered: None,
    })
}

/// The last entry of `runs` that is also in the log read by `op_id_at`. By log matching, all earlier entries are equal.
pub fn common_entry(runs: &[TermRun], op_id_at: impl Fn(u64) -> Option<OpId>) -> Option<OpId> {
    let has = |run: &TermRun, index: u64| op_id_at(index) == Some(OpId::new(run.term, index));
    runs.iter().rev().find_map(|run| {
        if !has(run, run.first) {
            return None;
        }
        // Entries of one term are contiguous, so a log with one of them has those before it.
        let (mut have, mut lack) = (run.first, run.last + 1);
        while have + 1 < lack {
            let middle = have + (lack - have) / 2;
            match has(run, middle) {
                true => have = middle,
                false => lack = middle,
            }
        }
        Some(OpId::new(run.term, have))
    })
}

#[cfg(test)]
mod tests {
    use raft_types::MAX_MESSAGE_BYTES;

    use super::*;
    use crate::calls::Question;

    fn run(term: u64, first: u64, last: u64) -> TermRun {
        TermRun { term, first, last }
    }

    fn log(runs: &[TermRun]) -> impl Fn(u64) -> Option<OpId> {
        move |index| {
            let mut runs = runs.iter();
            let run = runs.find(|run| (run.first..=run.last).contains(&index))?;
            Some(OpId::new(run.term, index))
        }
    }

    #[test]
    fn the_last_common_entry_is_found() {
        let ours = [run(1, 0, 99), run(2, 100, 180), run(1002, 181, 250)];
        let table = [
            (
                vec![run(1, 0, 99), run(2, 100, 200)],
                Some(OpId::new(2, 180)),
            ),
            (
                vec![run(1, 0, 99), run(2, 100, 150)],
                Some(OpId::new(2, 150)),
            ),
            (
                vec![run(1, 0, 120), run(3, 121, 130)],
                Some(OpId::new(1, 99)),
            ),
            (vec![run(7, 0, 5)], None),
            (vec![], None),
        ];
        for (theirs, expected) in table {
            assert_eq!(common_entry(&theirs, log(&ours)), expected, "{theirs:?}");
        }
    }

    /// The recollection is sent in a call, and a call that is too large gets no answer.
    #[test]
    fn of_a_long_history_the_newest_terms_travel() {
        let least = u64::MAX - 100_000;
        let runs: Vec<_> = (least..).take(50_000).map(|at| run(at, at, at)).collect();
        let own = Recollection::new(runs.clone(), Some(OpId::new(least, least)));
        assert_eq!(own.runs.len(), MOST_RUNS);
        assert_eq!(own.runs.last(), runs.last());
        let asked = serde_json::to_vec(&Question::Agreement(own)).unwrap();
        assert!(asked.len() < MAX_MESSAGE_BYTES / 2, "{}", asked.len());
        let short = Recollection::new(vec![run(1, 0, 9)], None);
        assert_eq!(short.runs, [run(1, 0, 9)]);
    }
}
