//! Reports whether the voters that a commit needs are answering, and which voters are missing.

use std::collections::BTreeSet;
use std::fmt;

use raft_types::MemberId;
use serde::{Deserialize, Serialize};

use crate::quorum::policy::majority_of;

/// One voter set, and which of its voters answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterSetHealth {
    /// The number of voters that a commit needs in this set.
    pub required: usize,
    /// The voters that answered within the lease, including the leader if it is in the set.
    pub answering: BTreeSet<MemberId>,
    /// The voters that did not answer within the lease.
    pub silent: BTreeSet<MemberId>,
}

impl VoterSetHealth {
    /// Returns true if enough voters answer.
    pub fn is_met(&self) -> bool {
        self.answering.len() >= self.required
    }
}

/// All voter sets in force. A commit needs a majority in each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumHealth {
    /// True if every set is met.
    pub ok: bool,
    /// The voter sets in force. There is more than one set while the quorum moves.
    pub sets: Vec<VoterSetHealth>,
}

impl QuorumHealth {
    /// Returns the health of the voter sets, from the members that answer.
    pub fn judge(sets: &[BTreeSet<MemberId>], answers: impl Fn(MemberId) -> bool) -> Self {
        let sets: Vec<VoterSetHealth> = sets
            .iter()
            .map(|voters| {
                let (answering, silent) = voters.iter().partition(|voter| answers(**voter));
                VoterSetHealth {
                    required: majority_of(voters.len()),
                    answering,
                    silent,
                }
            })
            .collect();
        let ok = !sets.is_empty() && sets.iter().all(VoterSetHealth::is_met);
        Self { ok, sets }
    }
}

/// Returns how many more voters may fail, in the worst case, before commits wait. This is the smallest margin of all voter sets. It is
/// negative if too few voters answer, and `None` without a voter set.
pub fn failures_tolerated(sets: &[VoterSetHealth]) -> Option<i64> {
    let spare = sets.iter().map(|set| {
        let count = |voters| i64::try_from(voters).unwrap_or(i64::MAX);
        count(set.answering.len()) - count(set.required)
    });
    spare.min()
}

/// Returns a text about the cost of an even number of voters: the last voter raises the majority, and is one more voter that can fail.
/// `None` for an odd number.
pub fn even_voters(voters: usize) -> Option<String> {
    let odd = voters.checked_sub(1).filter(|odd| odd % 2 == 1)?;
    Some(format!(
        "{voters} voters need {} answers and tolerate {}, no more than {odd} do",
        majority_of(voters),
        failures(voters - majority_of(voters)),
    ))
}

/// Returns a number of failures as text.
pub fn failures(number: usize) -> String {
    match number {
        0 => "no failure".to_owned(),
        1 => "1 failure".to_owned(),
        number => format!("{number} failures"),
    }
}

impl fmt::Display for QuorumHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ok {
            return f.write_str("the quorum answers");
        }
        let Some(unmet) = self.sets.iter().find(|set| !set.is_met()) else {
            return f.write_str("the ring has no voters yet; bootstrap it");
        };
        let silent: Vec<String> = unmet.silent.iter().map(MemberId::to_string).collect();
        write!(
            f,
            "{} of {} voters answer and {} are needed; no answer from member {}",
            unmet.answering.len(),
            unmet.answering.len() + unmet.silent.len(),
            unmet.required,
            silent.join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u64]) -> BTreeSet<MemberId> {
        ids.iter().copied().map(MemberId).collect()
    }

    #[test]
    fn every_set_has_to_be_met() {
        let met = |sets: &[&[u64]], answering: &[u64]| {
            let sets: Vec<_> = sets.iter().map(|ids| set(ids)).collect();
            let answering = set(answering);
            QuorumHealth::judge(&sets, |id| answering.contains(&id)).ok
        };
        assert!(!met(&[], &[]));
        assert!(met(&[&[1]], &[1]));
        assert!(!met(&[&[1, 2, 3]], &[1]));
        assert!(met(&[&[1, 2, 3]], &[1, 3]));
        assert!(!met(&[&[1, 2, 3, 4]], &[1, 2]));
        assert!(!met(&[&[1, 2, 3], &[4, 5, 6]], &[1, 2, 3, 4]));
        assert!(met(&[&[1, 2, 3], &[4, 5, 6]], &[1, 2, 4, 6]));
    }

    #[test]
    fn the_weakest_voter_set_decides_the_tolerated_failures() {
        let tolerated = |sets: &[&[u64]], answering: &[u64]| {
            let sets: Vec<_> = sets.iter().map(|ids| set(ids)).collect();
            let answering = set(answering);
            failures_tolerated(&QuorumHealth::judge(&sets, |id| answering.contains(&id)).sets)
        };
        for (sets, answering, expected) in [
            (&[][..], &[][..], None),
            (&[&[1][..]][..], &[1][..], Some(0)),
            (&[&[1, 2]], &[1, 2], Some(0)),
            (&[&[1, 2, 3]], &[1, 2, 3], Some(1)),
            (&[&[1, 2, 3]], &[1, 2], Some(0)),
            (&[&[1, 2, 3]], &[1], Some(-1)),
            // A fourth voter adds no tolerated failure.
            (&[&[1, 2, 3, 4]], &[1, 2, 3, 4], Some(1)),
            (&[&[1, 2, 3, 4]], &[1, 2, 3], Some(0)),
            (&[&[1, 2, 3, 4, 5]], &[1, 2, 3, 4, 5], Some(2)),
            (
                &[&[1, 2, 3, 4, 5], &[6, 7, 8]],
                &[1, 2, 3, 4, 5, 6, 7, 8],
                Some(1),
            ),
        ] {
            assert_eq!(
                tolerated(sets, answering),
                expected,
                "{sets:?} {answering:?}"
            );
        }
    }

    #[test]
    fn an_even_number_of_voters_is_named() {
        for odd in [0, 1, 3, 5] {
            assert_eq!(even_voters(odd), None, "{odd}");
        }
        assert_eq!(
            even_voters(2).as_deref(),
            Some("2 voters need 2 answers and tolerate no failure, no more than 1 do")
        );
        assert_eq!(
            even_voters(4).as_deref(),
            Some("4 voters need 3 answers and tolerate 1 failure, no more than 3 do")
        );
    }

    #[test]
    fn the_cause_names_missing_voters() {
        let health = QuorumHealth::judge(&[set(&[1, 2, 3])], |id| id == MemberId(1));
        assert_eq!(
            health.to_string(),
            "1 of 3 voters answer and 2 are needed; no answer from member 2, 3"
        );
    }
}
