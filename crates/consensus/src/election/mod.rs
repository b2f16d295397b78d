//! Elections: when this member campaigns, and for whom it may vote.
//!
//! The engine grants a vote by its rules: the larger term, a log at least as long, a majority of each voter set. This module restricts
//! that. [`vote_gate`] checks incoming vote requests ([`crate::calls::inbound`]). [`campaign`] decides whether this member may
//! campaign. A member asks the others first if its log lost its end ([`doubted_tail`]) or its data directory was restored to an earlier
//! state ([`put_back`]). The others report that to it ([`greetings`]). Where only a non-voter has what such a member needs, it is asked
//! to be the interim leader ([`stand_in`]). Candidates that split the votes then campaign in turn ([`split_votes`]), in the order of
//! [`heirs`]. A voter with a slow disk is asked for its vote earlier ([`late_votes`]). [`mock_election`] tests before a
//! promotion whether its target would be elected; [`mock_vote`] holds and answers it. [`dead_leader`] is the evidence that a leader's
//! process has exited; [`early_election`] then does not wait for its heartbeats.

pub(crate) mod campaign;
pub(crate) mod counted_votes;
pub(crate) mod dead_leader;
pub(crate) mod doubted_tail;
pub(crate) mod early_attempt;
pub(crate) mod early_election;
pub(crate) mod elections;
pub(crate) mod greetings;
pub(crate) mod heirs;
pub(crate) mod interim_term;
pub(crate) mod late_votes;
pub(crate) mod mock_election;
pub(crate) mod mock_vote;
pub(crate) mod put_back;
pub(crate) mod split_votes;
pub(crate) mod stand_in;
pub(crate) mod vote_gate;
