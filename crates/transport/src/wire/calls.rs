//! Conversion of log ids, votes, reports of logs, and the small calls.

use consensus::log_probe::Answered;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use raft_types::{LogId, LogReport, MemberId, OpId, TermRun, TypeConfig, Vote};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::schema;
use crate::wire::{Decoded, WireError};

pub(crate) fn log_id_to(log_id: LogId) -> schema::LogId {
    schema::LogId {
        term: log_id.leader_id.term,
        index: log_id.index,
    }
}

pub(crate) fn log_id_from(log_id: schema::LogId) -> LogId {
    OpId::new(log_id.term, log_id.index).into()
}

pub(crate) fn vote_to(vote: &Vote) -> schema::Vote {
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

pub(crate) fn required_vote(vote: Option<schema::Vote>) -> Decoded<Vote> {
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

pub(crate) fn heartbeat_request(
    head: schema::AppendHead,
) -> Decoded<AppendEntriesRequest<TypeConfig>> {
    Ok(AppendEntriesRequest {
        vote: required_vote(head.vote)?,
        prev_log_id: head.previous.map(log_id_from),
        leader_commit: head.leader_commit.map(log_id_from),
        entries: Vec::new(),
    })
}

/// Encodes an answer, with the report if one was requested.
pub(crate) fn append_answer(
    result: StreamAppendResult<TypeConfig>,
    report: Option<&LogReport>,
) -> schema::AppendAnswer {
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
        report: report.map(|report| schema::LogReport {
            vote: report.vote.as_ref().map(vote_to),
            runs: report.runs.iter().map(run_to).collect(),
        }),
    }
}

pub(crate) fn answered_from(answer: schema::AppendAnswer) -> Decoded<Answered> {
    use schema::append_answer::Answer;
    let result = match answer.answer.ok_or(WireError::Missing("answer"))? {
        Answer::Matching(matching) => Ok(matching.log_id.map(log_id_from)),
        Answer::Conflict(log_id) => Err(StreamAppendError::Conflict(log_id_from(log_id))),
        Answer::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote_from(vote))),
    };
    let report = answer.report.map(|report| LogReport {
        vote: report.vote.map(vote_from),
        runs: report.runs.iter().map(run_from).collect(),
    });
    Ok(Answered { result, report })
}

pub(crate) fn vote_request(request: &VoteRequest<TypeConfig>) -> schema::VoteRequest {
    schema::VoteRequest {
        vote: Some(vote_to(&request.vote)),
        last_log: request.last_log_id.map(log_id_to),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_from(request: schema::VoteRequest) -> Decoded<VoteRequest<TypeConfig>> {
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

pub(crate) fn vote_response(answer: schema::VoteAnswer) -> Decoded<VoteResponse<TypeConfig>> {
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
) -> Decoded<TransferLeaderRequest<TypeConfig>> {
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
) -> Decoded<TransferLeaderResponse<TypeConfig>> {
    use schema::transfer_answer::Answer;
    match answer.answer.ok_or(WireError::Missing("answer"))? {
        Answer::Accepted(schema::Accepted {}) => Ok(Ok(())),
        Answer::VoteChanged(changed) => Ok(Err(TransferLeaderError::VoteChanged {
            expected: required_vote(changed.expected)?,
            actual: required_vote(changed.actual)?,
        })),
        Answer::LogNotFlushed(logs) => Ok(Err(TransferLeaderError::LogNotFlushed {
            expected: logs.expected.map(log_id_from),
            actual: logs.actual.map(log_id_from),
        })),
    }
}

// A follower's log report, which is sent with an answer.

pub(super) fn run_to(run: &TermRun) -> schema::TermRun {
    schema::TermRun {
        term: run.term,
        first: run.first,
        last: run.last,
    }
}

pub(super) fn run_from(run: &schema::TermRun) -> TermRun {
    TermRun {
        term: run.term,
        first: run.first,
        last: run.last,
    }
}

// Requests and answers between members, which are JSON documents of the crate `consensus`.

pub(crate) fn encode(value: &impl Serialize) -> bytes::Bytes {
    // The values are plain, with text keys, so this never fails.
    serde_json::to_vec(value).unwrap_or_default().into()
}

pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, json: &[u8]) -> Decoded<T> {
    serde_json::from_slice(json).map_err(|error| WireError::Document {
        what,
        reason: error.to_string(),
    })
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
            let back = answered_from(append_answer(result.clone(), None)).unwrap();
            assert_eq!((back.result, back.report), (result, None));
        }
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

#[cfg(test)]
mod report_tests {
    use prost::Message;
    use raft_types::MemberId;
    use raft_types::OpId;
    use raft_types::Vote;

    use super::*;

    #[test]
    fn a_report_round_trips() {
        let run = |term, first, last| TermRun { term, first, last };
        let reports = [
            None,
            Some(LogReport::default()),
            Some(LogReport {
                vote: Some(Vote::new(7, MemberId(3))),
                runs: vec![run(1, 5, 100), run(7, 101, 101)],
            }),
        ];
        for report in reports {
            let result = Ok(Some(OpId::new(7, 101).into()));
            let sent = append_answer(result.clone(), report.as_ref());
            let answered = answered_from(sent).unwrap();
            assert_eq!((answered.result, answered.report), (result, report));
        }
        assert!(answered_from(schema::AppendAnswer::default()).is_err());
    }

    #[test]
    fn an_answer_without_a_report_encodes_none() {
        let result = Ok(Some(OpId::new(7, 101).into()));
        let plain = append_answer(result.clone(), None).encoded_len();
        assert!(append_answer(result, Some(&LogReport::default())).encoded_len() > plain);
    }
}

#[cfg(test)]
mod question_tests {
    use consensus::{Answer, FileBytes, Question};
    use raft_types::OpId;

    use super::*;

    /// Regression: an answer that has no JSON form was sent empty, and the caller repeated its question forever.
    #[test]
    fn pieces_of_files_round_trip() {
        let bytes: Vec<u8> = (0..=255).collect();
        let answer = Answer::FilePart(FileBytes(bytes.into()));
        let read: Answer = decode("answer", &encode(&answer)).unwrap();
        assert_eq!(read, answer);
        let asked = Question::FilePart(raft_types::FilePart {
            file: 7,
            before: None,
            last: OpId::new(2, 9),
            offset: 4,
        });
        let read: Question = decode("question", &encode(&asked)).unwrap();
        assert_eq!(read, asked);
    }

    #[test]
    fn answers_about_the_committed_end_round_trip() {
        for up_to in [None, Some(OpId::new(3, 7))] {
            let answer = Answer::Committed { up_to };
            let read: Answer = decode("answer", &encode(&answer)).unwrap();
            assert_eq!(read, answer);
        }
        let asked = Question::Committed;
        let read: Question = decode("question", &encode(&asked)).unwrap();
        assert_eq!(read, asked);
    }
}
