//! How openraft is parameterised. Log ids are `(term, index)`: the standard leader id allows one
//! leader per term.

use crate::entry::AppEntry;
use crate::ids::MemberId;
use crate::member_record::MemberRecord;
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
    type Payload = openraft::EntryPayload<AppEntry, MemberId, MemberRecord>;
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
/// What an entry carries.
pub type EntryPayload = openraft::type_config::alias::EntryPayloadOf<TypeConfig>;
/// The voter sets and the member records.
pub type Membership = openraft::Membership<MemberId, MemberRecord>;
/// A membership and the log id of the entry that made it.
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
