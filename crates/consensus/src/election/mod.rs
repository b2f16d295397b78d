//! Elections: when this member campaigns, and for whom it may vote.
//!
//! A vote is granted in the engine: the larger term, a log at least as long, a majority of each voter set. Here is what stands in
//! front of it. [`vote_gate`] is asked where a vote comes in ([`crate::calls::inbound`]); [`campaign`] says whether this member
//! stands for election; a member whose log lost its end asks the others first ([`doubted_tail`]), and so does one whose data directory was put back
//! to an earlier state ([`put_back`]), which the others tell it ([`greetings`]). Where a member without a vote alone has what such a member
//! needs, it is asked to lead for a moment ([`stand_in`]). Candidates that split the votes go one
//! after the other then ([`split_votes`]), in the order of the [`heirs`]; a voter whose disk is slow is asked for its vote earlier
//! ([`late_votes`]). [`mock_election`] tries, before a
//! promotion, whether its target would be elected; [`mock_vote`] holds it and answers it. [`dead_leader`] is what is known of a leader
//! whose process is gone, and [`early_election`] does not wait for its heartbeats.

pub(crate) mod campaign;
pub(crate) mod counted_votes;
pub(crate) mod dead_leader;
pub(crate) mod doubted_tail;
pub(crate) mod early_election;
pub(crate) mod greetings;
pub(crate) mod heirs;
pub(crate) mod late_votes;
pub(crate) mod mock_election;
pub(crate) mod mock_vote;
pub(crate) mod put_back;
pub(crate) mod split_votes;
pub(crate) mod stand_in;
pub(crate) mod vote_gate;
