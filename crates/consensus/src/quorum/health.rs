//! Whether the voters that a commit needs are answering, and which of them are missing.

use std::collections::BTreeSet;
use std::fmt;

use raft_types::MemberId;
use serde::{Deserialize, Serialize};

use super::majority::majority_of;

/// One voter set and who of it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterSetHealth {
    /// How many voters a commit needs here.
    pub required: usize,
    /// Those that answered within the lease, the leader itself among them.
    pub answering: BTreeSet<MemberId>,
    /// Those that did not answer within the lease.
    pub silent: BTreeSet<MemberId>,
}

impl VoterSetHealth {
    /// Whether enough of them answer.
    pub fn is_met(&self) -> bool {
        self.answering.len() >= self.required
    }
}

/// All voter sets in force; a commit needs each of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumHealth {
    /// Whether every set is met.
    pub ok: bool,
    /// One for each voter set that is in force; more than one while the quorum moves.
    pub sets: Vec<VoterSetHealth>,
}

impl QuorumHealth {
    /// Judges the voter sets in force by who answers.
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
    fn the_cause_names_who_is_missing() {
        let health = QuorumHealth::judge(&[set(&[1, 2, 3])], |id| id == MemberId(1));
        assert_eq!(
            health.to_string(),
            "1 of 3 voters answer and 2 are needed; no answer from member 2, 3"
        );
    }
}
