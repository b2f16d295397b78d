//! The start of a file, with which a log begins whose next entries are purged elsewhere.

use raft_types::{FileStart, MAX_MESSAGE_BYTES, Membership, OpId, StoredMembership, Vote};

use super::error::WireError;
use super::vote::{log_id_from, log_id_to, required_vote, vote_to};
use crate::schema;

/// What a message may have beside the header and the membership.
const FRAME_BYTES: usize = 256;

/// A start as one message.
///
/// # Errors
/// [`WireError::StartTooLarge`] when it does not fit into one.
pub(crate) fn begin_request(
    vote: &Vote,
    start: &FileStart,
) -> Result<schema::BeginRequest, WireError> {
    let membership = serde_json::to_vec(start.membership.membership());
    let membership = membership.map_err(|error| WireError::Document {
        what: "membership",
        reason: error.to_string(),
    })?;
    let bytes = start.header.len() + membership.len() + FRAME_BYTES;
    if bytes > MAX_MESSAGE_BYTES {
        return Err(WireError::StartTooLarge {
            before: start.before,
            bytes,
        });
    }
    Ok(schema::BeginRequest {
        vote: Some(vote_to(vote)),
        before: Some(log_id_to(start.before.into())),
        membership_log_id: start.membership.log_id().map(log_id_to),
        membership: membership.into(),
        header: start.header.clone(),
    })
}

pub(crate) fn begin_request_from(
    request: schema::BeginRequest,
) -> Result<(Vote, FileStart), WireError> {
    let vote = required_vote(request.vote)?;
    let before = request.before.ok_or(WireError::Missing("entry before"))?;
    let membership: Membership =
        serde_json::from_slice(&request.membership).map_err(|error| WireError::Document {
            what: "membership",
            reason: error.to_string(),
        })?;
    let start = FileStart {
        before: OpId::from(log_id_from(before)),
        membership: StoredMembership::new(request.membership_log_id.map(log_id_from), membership),
        header: request.header,
    };
    Ok((vote, start))
}

pub(crate) fn begin_answer(vote: &Vote) -> schema::BeginAnswer {
    schema::BeginAnswer {
        vote: Some(vote_to(vote)),
    }
}

pub(crate) fn begin_answer_from(answer: schema::BeginAnswer) -> Result<Vote, WireError> {
    required_vote(answer.vote)
}

#[cfg(test)]
mod tests {
    use raft_types::MemberId;

    use super::*;

    fn start(header: usize) -> FileStart {
        FileStart {
            before: OpId::new(3, 14),
            membership: StoredMembership::new(
                Some(OpId::new(2, 5).into()),
                Membership::new_with_defaults(vec![[MemberId(1), MemberId(2)].into()], []),
            ),
            header: vec![7; header].into(),
        }
    }

    #[test]
    fn a_start_round_trips() {
        let vote = Vote::new_committed(4, MemberId(2));
        let request = begin_request(&vote, &start(200)).unwrap();
        assert_eq!(begin_request_from(request).unwrap(), (vote, start(200)));
        assert_eq!(begin_answer_from(begin_answer(&vote)).unwrap(), vote);
        assert!(begin_request_from(schema::BeginRequest::default()).is_err());
    }

    #[test]
    fn a_start_that_no_message_holds_is_not_sent() {
        let vote = Vote::new_committed(4, MemberId(2));
        let refused = begin_request(&vote, &start(MAX_MESSAGE_BYTES)).unwrap_err();
        assert!(refused.to_string().contains("3.14"), "{refused}");
    }
}
