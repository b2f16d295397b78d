//! Log ids, votes and the small calls.

use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use raft_types::{CommittedLeaderId, LogId, MemberId, TypeConfig, Vote};

use super::error::WireError;
use crate::schema;

pub(crate) fn log_id_to(log_id: LogId) -> schema::LogId {
    schema::LogId {
        term: log_id.leader_id.term,
        index: log_id.index,
    }
}

pub(crate) fn log_id_from(log_id: schema::LogId) -> LogId {
    LogId {
        leader_id: CommittedLeaderId::new(log_id.term),
        index: log_id.index,
    }
}

pub(super) fn vote_to(vote: &Vote) -> schema::Vote {
    schema::Vote {
        term: vote.leader_id.term,
        candidate: vote.leader_id.voted_for.0,
        committed: vote.committed,
    }
}

pub(super) fn vote_from(vote: schema::Vote) -> Vote {
    let candidate = MemberId(vote.candidate);
    match vote.committed {
        true => Vote::new_committed(vote.term, candidate),
        false => Vote::new(vote.term, candidate),
    }
}

pub(super) fn required_vote(vote: Option<schema::Vote>) -> Result<Vote, WireError> {
    vote.map(vote_from).ok_or(WireError::Missing("vote"))
}

pub(crate) fn head_of(
    vote: &Vote,
    previous: Option<LogId>,
    leader_commit: Option<LogId>,
) -> schema::AppendHead {
    schema::AppendHead {
        vote: Some(vote_to(vote)),
        previous: previous.map(log_id_to),
        leader_commit: leader_commit.map(log_id_to),
        wants_report: false,
    }
}

/// A request without entries.
pub(crate) fn heartbeat_request(
    head: schema::AppendHead,
) -> Result<AppendEntriesRequest<TypeConfig>, WireError> {
    Ok(AppendEntriesRequest {
        vote: required_vote(head.vote)?,
        prev_log_id: head.previous.map(log_id_from),
        leader_commit: head.leader_commit.map(log_id_from),
        entries: Vec::new(),
    })
}

pub(crate) fn append_answer(result: StreamAppendResult<TypeConfig>) -> schema::AppendAnswer {
    use schema::append_answer::Answer;
    let answer = match result {
        Ok(matching) => Answer::Matching(schema::Matching {
            log_id: matching.map(log_id_to),
        }),
        Err(StreamAppendError::Conflict(log_id)) => Answer::Conflict(log_id_to(log_id)),
        Err(StreamAppendError::HigherVote(vote)) => Answer::HigherVote(vote_to(&vote)),
    };
    schema::AppendAnswer {
        answer: Some(answer),
        report: None,
    }
}

pub(crate) fn append_result(
    answer: schema::AppendAnswer,
) -> Result<StreamAppendResult<TypeConfig>, WireError> {
    use schema::append_answer::Answer;
    match answer.answer.ok_or(WireError::Missing("answer"))? {
        Answer::Matching(matching) => Ok(Ok(matching.log_id.map(log_id_from))),
        Answer::Conflict(log_id) => Ok(Err(StreamAppendError::Conflict(log_id_from(log_id)))),
        Answer::HigherVote(vote) => Ok(Err(StreamAppendError::HigherVote(vote_from(vote)))),
    }
}

pub(crate) fn vote_request(request: &VoteRequest<TypeConfig>) -> schema::VoteRequest {
    schema::VoteRequest {
        vote: Some(vote_to(&request.vote)),
        last_log: request.last_log_id.map(log_id_to),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_from(
    request: schema::VoteRequest,
) -> Result<VoteRequest<TypeConfig>, WireError> {
    let vote = required_vote(request.vote)?;
    let mut decoded = VoteRequest::new(vote, request.last_log.map(log_id_from));
    decoded.leadership_transfer = request.leadership_transfer;
    Ok(decoded)
}

pub(crate) fn vote_answer(response: &VoteResponse<TypeConfig>) -> schema::VoteAnswer {
    schema::VoteAnswer {
        vote: Some(vote_to(&response.vote)),
        granted: response.vote_granted,
        last_log: response.last_log_id.map(log_id_to),
    }
}

pub(crate) fn vote_response(
    answer: schema::VoteAnswer,
) -> Result<VoteResponse<TypeConfig>, WireError> {
    let vote = required_vote(answer.vote)?;
    let last_log = answer.last_log.map(log_id_from);
    Ok(VoteResponse::new(vote, last_log, answer.granted))
}

pub(crate) fn transfer_request(
    request: &TransferLeaderRequest<TypeConfig>,
) -> schema::TransferRequest {
    schema::TransferRequest {
        from_leader: Some(vote_to(request.from_leader())),
        to: request.to_node_id().0,
        last_log: request.last_log_id().copied().map(log_id_to),
    }
}

pub(crate) fn transfer_request_from(
    request: schema::TransferRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, WireError> {
    let from = required_vote(request.from_leader)?;
    let last_log = request.last_log.map(log_id_from);
    Ok(TransferLeaderRequest::new(
        from,
        MemberId(request.to),
        last_log,
    ))
}

pub(crate) fn transfer_answer(
    response: TransferLeaderResponse<TypeConfig>,
) -> schema::TransferAnswer {
    use schema::transfer_answer::Answer;
    let answer = match response {
        Ok(()) => Answer::Accepted(schema::Accepted {}),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            Answer::VoteChanged(schema::VoteChanged {
                expected: Some(vote_to(&expected)),
                actual: Some(vote_to(&actual)),
            })
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            Answer::LogNotFlushed(schema::LogNotFlushed {
                expected: expected.map(log_id_to),
                actual: actual.map(log_id_to),
            })
        }
    };
    schema::TransferAnswer {
        answer: Some(answer),
    }
}

pub(crate) fn transfer_response(
    answer: schema::TransferAnswer,
) -> Result<TransferLeaderResponse<TypeConfig>, WireError> {
    use schema::transfer_answer::Answer;
    match answer.answer.ok_or(WireError::Missing("answer"))? {
        Answer::Accepted(schema::Accepted {}) => Ok(Ok(())),
        Answer::VoteChanged(changed) => Ok(Err(TransferLeaderError::VoteChanged {
            expected: required_vote(changed.expected)?,
            actual: required_vote(changed.actual)?,
        })),
        Answer::LogNotFlushed(behind) => Ok(Err(TransferLeaderError::LogNotFlushed {
            expected: behind.expected.map(log_id_from),
            actual: behind.actual.map(log_id_from),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_id() -> LogId {
        log_id_from(schema::LogId { term: 3, index: 14 })
    }

    #[test]
    fn answers_round_trip() {
        let vote = Vote::new_committed(4, MemberId(2));
        let results: [StreamAppendResult<TypeConfig>; 4] = [
            Ok(None),
            Ok(Some(log_id())),
            Err(StreamAppendError::Conflict(log_id())),
            Err(StreamAppendError::HigherVote(vote)),
        ];
        for result in results {
            let back = append_result(append_answer(result.clone())).unwrap();
            assert_eq!(back, result);
        }
        assert!(append_result(schema::AppendAnswer::default()).is_err());
    }

    #[test]
    fn votes_round_trip() {
        let mut request = VoteRequest::new(Vote::new(4, MemberId(2)), Some(log_id()));
        request.leadership_transfer = true;
        assert_eq!(vote_request_from(vote_request(&request)).unwrap(), request);
        let response = VoteResponse::new(Vote::new(4, MemberId(2)), None, true);
        assert_eq!(vote_response(vote_answer(&response)).unwrap(), response);
        assert!(vote_request_from(schema::VoteRequest::default()).is_err());
    }

    #[test]
    fn transfers_round_trip() {
        let vote = Vote::new_committed(4, MemberId(2));
        let request = TransferLeaderRequest::new(vote, MemberId(3), Some(log_id()));
        assert_eq!(
            transfer_request_from(transfer_request(&request)).unwrap(),
            request
        );
        let responses: [TransferLeaderResponse<TypeConfig>; 3] = [
            Ok(()),
            Err(TransferLeaderError::VoteChanged {
                expected: vote,
                actual: Vote::new(5, MemberId(1)),
            }),
            Err(TransferLeaderError::LogNotFlushed {
                expected: Some(log_id()),
                actual: None,
            }),
        ];
        for response in responses {
            let back = transfer_response(transfer_answer(response.clone())).unwrap();
            assert_eq!(back, response);
        }
    }
}
