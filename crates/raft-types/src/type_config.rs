//! How openraft is parameterised. Log ids are `(term, index)`: the standard leader id allows one
//! leader per term.

use crate::entry::AppEntry;
use crate::ids::MemberId;
use crate::member_record::MemberRecord;
use crate::op_id::OpId;
use crate::payload::EntryPayload;
use crate::proposal::ProposalResponder;

/// The ring's openraft type configuration. Written out, because openraft's macro for it cannot
/// name a responder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig {}

impl openraft::RaftTypeConfig for TypeConfig {
    type D = AppEntry;
    type R = ();
    type NodeId = MemberId;
    type Node = MemberRecord;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, MemberId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload;
    type Entry =
        openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type Responder<T>
        = ProposalResponder<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type AsyncRuntime = openraft::TokioRuntime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// A log id, `(term, index)` in openraft's clothes; see [`crate::OpId`].
pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
/// The part of a log id that names the leader: its term.
pub type CommittedLeaderId = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;
/// A vote as it is stored and sent.
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
/// One entry of the log.
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
/// The voter sets and the member records.
pub type Membership = openraft::Membership<MemberId, MemberRecord>;
/// A membership and the log id of the entry that made it.
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;

impl From<LogId> for OpId {
    fn from(log_id: LogId) -> Self {
        Self::new(log_id.leader_id.term, log_id.index)
    }
}

impl From<OpId> for LogId {
    fn from(op_id: OpId) -> Self {
        Self {
            leader_id: CommittedLeaderId::new(op_id.term),
            index: op_id.index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_id_round_trips() {
        let op_id = OpId::new(3, 9);
        assert_eq!(OpId::from(LogId::from(op_id)), op_id);
    }
}
