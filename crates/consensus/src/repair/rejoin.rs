//! A member that rejoins after a quorum was repaired without it may hold committed entries that the ring has given up. The engine would
//! silently keep them, because it never compares committed entries again. So a member asks the others before its Raft starts, and truncates
//! its log to the last common entry.

use raft_types::{OpId, TermRun};
use serde::{Deserialize, Serialize};

use crate::election::put_back::Remembered;
use crate::engine;
use crate::engine::{Engine, Fault};
use crate::repair::forced_membership::leap_from;

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
    pub(crate) fn last(&self) -> Option<OpId> {
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

/// The action of a member before its Raft may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejoin {
    /// No action: no answer contradicts its log.
    AsItIs,
    /// Truncate the log: the ring continued after this entry without the later ones.
    CutBack {
        /// The last entry that the ring kept; `None` if it kept none.
        to: Option<OpId>,
        /// The end of the answering member's log.
        ring_last: OpId,
    },
}

/// Evaluates the answers. Two logs with different committed entries have different histories: an operator repaired the quorum in between,
/// and the later term continues. A log whose term only a repair can reach counts as committed. Its member may have restarted since without
/// its commit index, and can commit only with the members that must truncate their logs.
pub fn judge(own: &Recollection, answers: impl IntoIterator<Item = Agreement>) -> Rejoin {
    let after = |op_id: Option<OpId>, common: Option<OpId>| {
        op_id.map(|op_id| op_id.index) > common.map(|common| common.index)
    };
    let leap = leap_from(own.last());
    let contradictions = answers.into_iter().filter_map(|answer| {
        let ring_last = answer.last?;
        // Omitted or purged runs may be common; only proven differences count.
        let all_runs = own.runs.first().is_none_or(|run| run.first == 0);
        let comparable = answer.common.is_some() || all_runs && answer.purged.is_none();
        let contradicts = comparable
            && after(own.committed, answer.common)
            && (after(answer.committed, answer.common) || ring_last.term >= leap)
            && own.last().is_some_and(|last| last.term < ring_last.term);
        contradicts.then_some((answer.common, ring_last))
    });
    let earliest = contradictions.min_by_key(|(common, _)| common.map(|common| common.index));
    match earliest {
        Some((to, ring_last)) => Rejoin::CutBack { to, ring_last },
        None => Rejoin::AsItIs,
    }
}

#[cfg(test)]
mod tests {
    use raft_types::MAX_MESSAGE_BYTES;

    use super::*;
    use crate::calls::Question;
    use crate::repair::forced_membership::TERM_LEAP;

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

    #[test]
    fn only_a_contradiction_of_committed_entries_cuts() {
        const LEAPT: u64 = 1 + TERM_LEAP;
        let own = Recollection {
            runs: vec![run(1, 0, 200)],
            committed: Some(OpId::new(1, 190)),
        };
        let repaired = Agreement {
            common: Some(OpId::new(1, 180)),
            last: Some(OpId::new(LEAPT, 250)),
            committed: Some(OpId::new(LEAPT, 240)),
            purged: None,
            remembered: None,
        };
        let cut = Rejoin::CutBack {
            to: Some(OpId::new(1, 180)),
            ring_last: OpId::new(LEAPT, 250),
        };
        assert_eq!(judge(&own, [repaired.clone()]), cut);
        // The survivor restarted, and has not recorded that its repair is committed.
        let restarted = Agreement {
            committed: Some(OpId::new(1, 175)),
            ..repaired.clone()
        };
        assert_eq!(judge(&own, [restarted]), cut);
        assert_eq!(judge(&own, []), Rejoin::AsItIs);

        let harmless = [
            // A lagging follower.
            Agreement {
                last: Some(OpId::new(1, 150)),
                committed: Some(OpId::new(1, 150)),
                common: Some(OpId::new(1, 150)),
                purged: None,
                remembered: None,
            },
            // An ordinary later leader: all committed entries are common.
            Agreement {
                common: Some(OpId::new(1, 195)),
                ..repaired.clone()
            },
            // A later leader that has not committed any entry after the common one.
            Agreement {
                last: Some(OpId::new(2, 250)),
                committed: Some(OpId::new(1, 180)),
                ..repaired.clone()
            },
            // The other member is the one that was given up.
            Agreement {
                last: Some(OpId::new(1, 300)),
                ..repaired.clone()
            },
            // It has purged the comparable entries.
            Agreement {
                common: None,
                purged: Some(OpId::new(LEAPT, 230)),
                ..repaired.clone()
            },
        ];
        for answer in harmless {
            assert_eq!(judge(&own, [answer.clone()]), Rejoin::AsItIs, "{answer:?}");
        }
        let truncated = Recollection {
            runs: vec![run(1, 5, 200)],
            ..own.clone()
        };
        // If an entry is known to be common, earlier purged entries do not matter.
        let purged = Agreement {
            purged: Some(OpId::new(1, 170)),
            ..repaired.clone()
        };
        assert_eq!(judge(&own, [purged.clone()]), cut);
        assert_eq!(judge(&truncated, [purged]), cut);
        let unknown = Agreement {
            common: None,
            ..repaired.clone()
        };
        assert_eq!(judge(&truncated, [unknown]), Rejoin::AsItIs);
        let earlier = Agreement {
            common: Some(OpId::new(1, 120)),
            ..repaired.clone()
        };
        let Rejoin::CutBack { to, .. } = judge(&own, [repaired, earlier]) else {
            panic!("two contradictions");
        };
        assert_eq!(to, Some(OpId::new(1, 120)));
    }
}
