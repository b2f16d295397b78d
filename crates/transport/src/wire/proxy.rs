//! Compact encoding of proxy sessions. The previous part predicts the next one, and each part contains only its difference from the
//! prediction. The writer and the reader of a session process the same parts in the same order.

use proxy::{ProxyAnswer, ProxyRequest};
use raft_types::{LogId, MemberId, OpId, TermRun, Vote};

use crate::schema::{self, ProxyAnswerPart, ProxyPart};
use crate::wire::calls::{
    answered_from, append_answer, log_id_from, log_id_to, required_vote, run_from, run_to, vote_to,
};
use crate::wire::{Decoded, WireError};

/// Encodes the requests of a session, at the leader's end.
#[derive(Debug)]
pub(crate) struct RequestWriter {
    session: u32,
    /// The session's route; `None` after the first part, which contains it.
    onward: Option<Vec<MemberId>>,
    vote: Option<Vote>,
    last: Option<LogId>,
}

impl RequestWriter {
    pub(crate) fn new(session: u32, onward: Vec<MemberId>) -> Self {
        Self {
            session,
            onward: Some(onward),
            vote: None,
            last: None,
        }
    }

    /// Encodes a request as a part; returns `None` if the request is of another leadership than the session.
    pub(crate) fn write(&mut self, request: &ProxyRequest) -> Option<ProxyPart> {
        let vote = *self.vote.get_or_insert(request.vote);
        if vote != request.vote {
            return None;
        }
        let onward = self.onward.take();
        let place = match (&onward, request.previous) {
            (None, previous) if previous == self.last => None,
            (_, Some(previous)) => Some(schema::proxy_part::Place::Previous(log_id_to(previous))),
            (_, None) => Some(schema::proxy_part::Place::Beginning(true)),
        };
        let term = vote.leader_id.term;
        let (more, runs) = match request.entries.as_slice() {
            [] => (0, Vec::new()),
            [run] if run.term == term => (run.last - run.first, Vec::new()),
            runs => (0, runs.iter().map(run_to).collect()),
        };
        self.last = request.last();
        let commit_distance = distance(self.last, request.leader_commit, term);
        let leader_commit = match commit_distance {
            Some(_) => None,
            None => request.leader_commit.map(log_id_to),
        };
        Some(ProxyPart {
            session: self.session,
            open: onward.map(|onward| schema::ProxyOpen {
                vote: Some(vote_to(&vote)),
                onward: onward.into_iter().map(|member| member.0).collect(),
            }),
            place,
            more,
            runs,
            no_entries: request.is_empty(),
            commit_distance: commit_distance.map_or(0, |distance| distance + 1),
            leader_commit,
            wants_report: request.wants_report,
            ends: false,
        })
    }
}

/// Returns how far the commit index lags the last entry; `None` if one of them is not of this term.
fn distance(last: Option<LogId>, commit: Option<LogId>, term: u64) -> Option<u64> {
    let (last, commit) = (last?, commit?);
    let of_term = last.leader_id.term == term && commit.leader_id.term == term;
    of_term.then(|| last.index.checked_sub(commit.index))?
}

/// Maximum number of entries in a part, more than any request of the engine has.
const MOST_ENTRIES: u64 = 1 << 20;

/// Decodes the requests of a session, at the proxy's end.
#[derive(Debug)]
pub(crate) struct RequestReader {
    /// The vote of all requests of the session.
    pub(crate) vote: Vote,
    last: Option<LogId>,
}

impl RequestReader {
    /// Returns a new session and its route.
    pub(crate) fn open(open: &schema::ProxyOpen) -> Decoded<(Self, Vec<MemberId>)> {
        let vote = required_vote(open.vote)?;
        let onward = open.onward.iter().map(|member| MemberId(*member));
        Ok((Self { vote, last: None }, onward.collect()))
    }

    /// Decodes the request in a part.
    pub(crate) fn read(&mut self, part: &ProxyPart) -> Decoded<ProxyRequest> {
        use schema::proxy_part::Place;
        let previous = match &part.place {
            None => self.last,
            Some(Place::Previous(previous)) => Some(log_id_from(*previous)),
            Some(Place::Beginning(_)) => None,
        };
        let term = self.vote.leader_id.term;
        let entries = match part.runs.as_slice() {
            [] if part.no_entries => Vec::new(),
            [] => {
                let first = previous.map_or(0, |previous| previous.index.saturating_add(1));
                let last = first.saturating_add(part.more);
                vec![TermRun { term, first, last }]
            }
            runs => runs.iter().map(run_from).collect(),
        };
        let mut request = ProxyRequest {
            vote: self.vote,
            previous,
            leader_commit: part.leader_commit.map(log_id_from),
            entries,
            wants_report: part.wants_report,
        };
        if !request.is_whole() || request.len() > MOST_ENTRIES {
            return Err(WireError::OutOfOrder(
                "entries that do not follow each other",
            ));
        }
        self.last = request.last();
        if let (Some(distance), Some(last)) = (part.commit_distance.checked_sub(1), self.last) {
            let index = last.index.checked_sub(distance);
            let index = index.ok_or(WireError::OutOfOrder("a commit before the log"))?;
            request.leader_commit = Some(OpId::new(term, index).into());
        }
        Ok(request)
    }
}

/// Encodes the answers of a session, at the proxy's end.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    session: u32,
    /// The same state as the leader's reader has. Its prediction is that an answer only acknowledges more entries than the previous one.
    held: AnswerReader,
}

impl AnswerWriter {
    pub(crate) fn new(session: u32, vote: &Vote) -> Self {
        Self {
            session,
            held: AnswerReader::new(vote),
        }
    }

    pub(crate) fn write(&mut self, answer: ProxyAnswer) -> ProxyAnswerPart {
        use schema::proxy_answer_part::Answer;
        let mut moving = false;
        let answer = match answer {
            ProxyAnswer::Answered(answered) => {
                let matching = answered.result.as_ref().ok().copied().flatten();
                let advance = matching
                    .filter(|_| answered.report.is_none())
                    .filter(|matching| matching.leader_id.term == self.held.term)
                    .and_then(|matching| matching.index.checked_add(1))
                    .and_then(|next| next.checked_sub(self.held.next));
                if let Some(matching) = matching {
                    // The reader does the same, because a member may name the last possible index.
                    self.held.next = matching.index.saturating_add(1);
                }
                match advance {
                    Some(advance) => Answer::Advance(advance),
                    None => Answer::Other(append_answer(answered.result, answered.report.as_ref())),
                }
            }
            ProxyAnswer::SentOn { upto, moves } => {
                moving = moves;
                Answer::SentOn(upto)
            }
            ProxyAnswer::Missing { op_id, purged } => Answer::Missing(schema::ProxyMissing {
                entry: Some(log_id_to(op_id.into())),
                purged,
            }),
            ProxyAnswer::CannotCall { member, why } => {
                Answer::CannotCall(schema::ProxyCannotCall {
                    member: member.0,
                    why,
                })
            }
            ProxyAnswer::Refused(why) => Answer::Refused(why),
        };
        ProxyAnswerPart {
            session: self.session,
            answer: Some(answer),
            moves: moving,
        }
    }

    /// Returns the part that ends the session after all answers.
    pub(crate) fn end(&self) -> ProxyAnswerPart {
        ProxyAnswerPart {
            session: self.session,
            answer: Some(schema::proxy_answer_part::Answer::Ended(true)),
            moves: false,
        }
    }
}

/// Decodes the answers of a session, at the leader's end.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    term: u64,
    /// The index after the last acknowledged one.
    next: u64,
}

impl AnswerReader {
    pub(crate) fn new(vote: &Vote) -> Self {
        let term = vote.leader_id.term;
        Self { term, next: 0 }
    }

    /// Decodes the answer in a part; returns `None` at the end of the session.
    pub(crate) fn read(&mut self, part: ProxyAnswerPart) -> Decoded<Option<ProxyAnswer>> {
        use schema::proxy_answer_part::Answer;
        let answer = match part.answer.ok_or(WireError::Missing("answer"))? {
            Answer::Advance(advance) => {
                let next = self.next.checked_add(advance);
                let index = next.and_then(|next| next.checked_sub(1));
                let index = index.ok_or(WireError::OutOfOrder("an entry before the log"))?;
                self.next = index + 1;
                ProxyAnswer::Answered(consensus::log_probe::Answered {
                    result: Ok(Some(OpId::new(self.term, index).into())),
                    report: None,
                })
            }
            Answer::Other(other) => {
                let answered = answered_from(other)?;
                if let Ok(Some(matching)) = answered.result {
                    self.next = matching.index.saturating_add(1);
                }
                ProxyAnswer::Answered(answered)
            }
            Answer::SentOn(upto) => ProxyAnswer::SentOn {
                upto,
                moves: part.moves,
            },
            Answer::Missing(missing) => ProxyAnswer::Missing {
                op_id: log_id_from(missing.entry.ok_or(WireError::Missing("entry"))?).into(),
                purged: missing.purged,
            },
            Answer::CannotCall(cannot) => ProxyAnswer::CannotCall {
                member: MemberId(cannot.member),
                why: cannot.why,
            },
            Answer::Refused(why) => ProxyAnswer::Refused(why),
            Answer::Ended(_) => return Ok(None),
        };
        Ok(Some(answer))
    }
}

#[cfg(test)]
mod tests;
