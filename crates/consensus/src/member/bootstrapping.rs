//! The making of a ring by one of its members.

use std::collections::BTreeMap;

use raft_types::{MemberId, MemberRecord, Membership};
use thiserror::Error;

use super::Member;
use crate::fault::Fault;
use crate::quorum::{PolicyGap, QuorumPolicy, logged_rules};
use crate::repair::forced_membership::{ForceError, force_membership};

/// Why a ring was not initialised.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// The log has entries, or the member voted.
    #[error("this member has a log already; a ring is initialised once, on an empty one")]
    NotPristine,
    /// This member is not in the list.
    #[error("member {0} is not among the members to begin with")]
    NotInList(MemberId),
    /// The founder does not vote.
    #[error("member {0} does not vote, so it cannot make the ring; bootstrap a member that does")]
    DoesNotVote(MemberId),
    /// The founder does not count under the policy: nobody who does would ever hear of the ring.
    #[error(
        "with policy {policy}, member {member} is in no quorum, so it cannot make the ring; bootstrap a voting member of those regions"
    )]
    OutsideTheQuorum {
        /// The founder.
        member: MemberId,
        /// The policy.
        policy: QuorumPolicy,
    },
    /// The policy needs voters that are not there.
    #[error(transparent)]
    Policy(#[from] PolicyGap),
    /// The engine has stopped.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

/// The term under which a ring's first membership is written; its first leader has the next one.
const FIRST_TERM: u64 = 1;

impl Member {
    /// Initialises the ring: all its members, and the voter sets that the policy wants with the leader in this member's
    /// region. Once in a ring's life, on one member.
    ///
    /// # Errors
    /// [`BootstrapError`]; the log is unchanged then.
    pub async fn bootstrap(
        &self,
        members: BTreeMap<MemberId, MemberRecord>,
    ) -> Result<(), BootstrapError> {
        let own = members.get(&self.id());
        let own = own.ok_or(BootstrapError::NotInList(self.id()))?;
        if !own.votes {
            return Err(BootstrapError::DoesNotVote(self.id()));
        }
        let rules = &self.0.config.rules;
        let sets = rules.voter_sets(&members, &own.region)?;
        if !sets.iter().any(|set| set.contains(&self.id())) {
            return Err(BootstrapError::OutsideTheQuorum {
                member: self.id(),
                policy: rules.policy.clone(),
            });
        }
        if self.raft().is_initialized().await.map_err(Fault::from)? {
            return Err(BootstrapError::NotPristine);
        }
        // The sets are of members of the list, and none is empty.
        let mut members = members;
        logged_rules::write(&mut members, rules);
        let membership = Membership::new(sets, members).map_err(|_| PolicyGap::NoVotersAtAll)?;
        match force_membership(self.raft(), membership, None, FIRST_TERM).await {
            Ok(_) => Ok(()),
            Err(ForceError::Changed) => Err(BootstrapError::NotPristine),
            Err(ForceError::Stopped(fault)) => Err(fault.into()),
        }
    }
}
