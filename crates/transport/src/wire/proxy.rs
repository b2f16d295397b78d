//! The requests and answers of sessions with a proxy, as few bytes as it takes: each part says what one would not expect after
//! the part before. A session has a writer and a reader on either side, which see the same parts in the same order.

use proxy::{ProxyAnswer, ProxyRequest};
use raft_types::{LogId, MemberId, OpId, TermRun, Vote};

use super::error::WireError;
use super::report::{answered_from, reported_answer};
use super::vote::{log_id_from, log_id_to, required_vote, vote_to};
use crate::schema::{self, ProxyAnswerPart, ProxyPart};

/// The leader's end of a session's requests.
#[derive(Debug)]
pub(crate) struct RequestWriter {
    session: u32,
    /// Where the session goes, until its first part has said so.
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

    /// The part for a request; none when it is of another leadership than the session.
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
        let commit_behind = behind(self.last, request.leader_commit, term);
        let leader_commit = match commit_behind {
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
            commit_behind: commit_behind.map_or(0, |behind| behind + 1),
            leader_commit,
            wants_report: request.wants_report,
            ends: false,
        })
    }

    /// The part that says that nothing more comes.
    pub(crate) fn end(&self) -> ProxyPart {
        ProxyPart {
            session: self.session,
            ends: true,
            ..ProxyPart::default()
        }
    }
}

/// How many entries the commit is before the last one, if both are of the term.
fn behind(last: Option<LogId>, commit: Option<LogId>, term: u64) -> Option<u64> {
    let (last, commit) = (last?, commit?);
    let of_term = last.leader_id.term == term && commit.leader_id.term == term;
    of_term.then(|| last.index.checked_sub(commit.index))?
}

fn run_to(run: &TermRun) -> schema::TermRun {
    schema::TermRun {
        term: run.term,
        first: run.first,
        last: run.last,
    }
}

/// More than any request of the engine has.
const MOST_ENTRIES: u64 = 1 << 20;

/// The proxy's end of a session's requests.
#[derive(Debug)]
pub(crate) struct RequestReader {
    vote: Vote,
    last: Option<LogId>,
}

impl RequestReader {
    /// A session that begins, and where it goes.
    pub(crate) fn open(open: &schema::ProxyOpen) -> Result<(Self, Vec<MemberId>), WireError> {
        let vote = required_vote(open.vote)?;
        let onward = open.onward.iter().map(|member| MemberId(*member));
        Ok((Self { vote, last: None }, onward.collect()))
    }

    pub(crate) fn vote(&self) -> Vote {
        self.vote
    }

    /// The request of a part.
    pub(crate) fn read(&mut self, part: &ProxyPart) -> Result<ProxyRequest, WireError> {
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
            runs => {
                let runs = runs.iter().map(|run| TermRun {
                    term: run.term,
                    first: run.first,
                    last: run.last,
                });
                runs.collect()
            }
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
        if let (Some(behind), Some(last)) = (part.commit_behind.checked_sub(1), self.last) {
            let index = last.index.checked_sub(behind);
            let index = index.ok_or(WireError::OutOfOrder("a commit before the log"))?;
            request.leader_commit = Some(OpId::new(term, index).into());
        }
        Ok(request)
    }
}

/// What an answer says that only tells of more entries: they are counted from the one before.
#[derive(Debug)]
struct Held {
    term: u64,
    behind: u64,
}

impl Held {
    fn new(vote: &Vote) -> Self {
        Self {
            term: vote.leader_id.term,
            behind: 0,
        }
    }
}

/// The proxy's end of a session's answers.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    session: u32,
    held: Held,
}

impl AnswerWriter {
    pub(crate) fn new(session: u32, vote: &Vote) -> Self {
        Self {
            session,
            held: Held::new(vote),
        }
    }

    pub(crate) fn write(&mut self, answer: ProxyAnswer) -> ProxyAnswerPart {
        use schema::proxy_answer_part::Answer;
        let answer = match answer {
            ProxyAnswer::Answered(answered) => {
                let matching = answered.result.as_ref().ok().copied().flatten();
                let advance = matching
                    .filter(|_| answered.report.is_none())
                    .filter(|matching| matching.leader_id.term == self.held.term)
                    .and_then(|matching| (matching.index + 1).checked_sub(self.held.behind));
                if let Some(matching) = matching {
                    self.held.behind = matching.index + 1;
                }
                match advance {
                    Some(advance) => Answer::Advance(advance),
                    None => {
                        Answer::Other(reported_answer(answered.result, answered.report.as_ref()))
                    }
                }
            }
            ProxyAnswer::SentOn(upto) => Answer::SentOn(upto),
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
        }
    }

    /// The part that says that the session is over, with everything answered.
    pub(crate) fn end(&self) -> ProxyAnswerPart {
        ProxyAnswerPart {
            session: self.session,
            answer: Some(schema::proxy_answer_part::Answer::Ended(true)),
        }
    }
}

/// The leader's end of a session's answers.
#[derive(Debug)]
pub(crate) struct AnswerReader(Held);

impl AnswerReader {
    pub(crate) fn new(vote: &Vote) -> Self {
        Self(Held::new(vote))
    }

    /// The answer of a part; none when the session is over.
    pub(crate) fn read(&mut self, part: ProxyAnswerPart) -> Result<Option<ProxyAnswer>, WireError> {
        use schema::proxy_answer_part::Answer;
        let held = &mut self.0;
        let answer = match part.answer.ok_or(WireError::Missing("answer"))? {
            Answer::Advance(advance) => {
                let behind = held.behind.checked_add(advance);
                let index = behind.and_then(|behind| behind.checked_sub(1));
                let index = index.ok_or(WireError::OutOfOrder("an entry before the log"))?;
                held.behind = index + 1;
                ProxyAnswer::Answered(consensus::matching::Answered {
                    result: Ok(Some(OpId::new(held.term, index).into())),
                    report: None,
                })
            }
            Answer::Other(other) => {
                let answered = answered_from(other)?;
                if let Ok(Some(matching)) = answered.result {
                    held.behind = matching.index.saturating_add(1);
                }
                ProxyAnswer::Answered(answered)
            }
            Answer::SentOn(upto) => ProxyAnswer::SentOn(upto),
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
mod tests {
    use consensus::matching::Answered;
    use openraft::raft::StreamAppendError;
    use prost::Message;
    use raft_types::LogReport;

    use super::*;

    const TERM: u64 = 7;

    fn vote() -> Vote {
        Vote::new_committed(TERM, MemberId(1))
    }

    fn id(term: u64, index: u64) -> LogId {
        OpId::new(term, index).into()
    }

    fn request(
        previous: Option<LogId>,
        runs: &[(u64, u64)],
        commit: Option<LogId>,
    ) -> ProxyRequest {
        let mut first = previous.map_or(0, |previous| previous.index + 1);
        let runs = runs.iter().map(|(term, count)| {
            let run = TermRun {
                term: *term,
                first,
                last: first + count - 1,
            };
            first += count;
            run
        });
        ProxyRequest {
            vote: vote(),
            previous,
            leader_commit: commit,
            entries: runs.collect(),
            wants_report: false,
        }
    }

    #[test]
    fn requests_arrive_as_they_were_sent() {
        let requests = [
            ProxyRequest {
                wants_report: true,
                ..request(None, &[(5, 3), (TERM, 2)], None)
            },
            request(Some(id(TERM, 4)), &[(TERM, 1)], Some(id(TERM, 3))),
            request(Some(id(TERM, 5)), &[(TERM, 100)], Some(id(TERM, 105))),
            request(Some(id(TERM, 105)), &[], Some(id(TERM, 105))),
            request(Some(id(TERM, 105)), &[(TERM, 1)], Some(id(5, 2))),
            request(Some(id(TERM, 106)), &[(TERM, 1)], Some(id(TERM, 900))),
            request(Some(id(5, 2)), &[(TERM, 2)], None),
            request(None, &[], None),
            request(None, &[(TERM, 1)], Some(id(TERM, 0))),
        ];
        let onward = vec![MemberId(2), MemberId(3)];
        let mut writer = RequestWriter::new(9, onward.clone());
        let mut reader = None;
        for request in requests {
            let part = writer.write(&request).unwrap();
            assert_eq!(part.session, 9);
            let reader = reader.get_or_insert_with(|| {
                let (reader, told) = RequestReader::open(part.open.as_ref().unwrap()).unwrap();
                assert_eq!(told, onward);
                reader
            });
            assert_eq!(reader.read(&part).unwrap(), request);
        }
        let of_another = ProxyRequest {
            vote: Vote::new_committed(TERM + 1, MemberId(1)),
            ..request(None, &[], None)
        };
        assert!(writer.write(&of_another).is_none());
    }

    #[test]
    fn an_entry_in_the_stream_of_a_leadership_takes_eight_bytes_both_ways() {
        let mut writer = RequestWriter::new(3, vec![MemberId(2)]);
        let mut answers = AnswerWriter::new(3, &vote());
        let far = 3_000_000_000;
        writer
            .write(&request(Some(id(TERM, far)), &[(TERM, 1)], None))
            .unwrap();
        let answered = |index| {
            ProxyAnswer::Answered(Answered {
                result: Ok(Some(id(TERM, index))),
                report: None,
            })
        };
        answers.write(answered(far + 1));
        let next = request(Some(id(TERM, far + 1)), &[(TERM, 1)], Some(id(TERM, far)));
        let there = writer.write(&next).unwrap().encoded_len();
        let back = answers.write(answered(far + 2)).encoded_len();
        assert_eq!((there, back), (4, 4));
    }

    #[test]
    fn answers_arrive_as_they_were_given() {
        let ok = |matching| {
            ProxyAnswer::Answered(Answered {
                result: Ok(matching),
                report: None,
            })
        };
        let answers = [
            ok(None),
            ok(Some(id(TERM, 10))),
            ok(Some(id(TERM, 10))),
            ok(Some(id(TERM, 400))),
            ok(Some(id(5, 3))),
            ok(Some(id(TERM, 401))),
            ProxyAnswer::Answered(Answered {
                result: Ok(Some(id(TERM, 402))),
                report: Some(LogReport::default()),
            }),
            ok(Some(id(TERM, 403))),
            ProxyAnswer::SentOn(500),
            ProxyAnswer::Missing {
                op_id: OpId::new(TERM, 501),
                purged: true,
            },
            ProxyAnswer::CannotCall {
                member: MemberId(4),
                why: "away".to_owned(),
            },
            ProxyAnswer::Refused("no".to_owned()),
            ProxyAnswer::Answered(Answered {
                result: Err(StreamAppendError::Conflict(id(TERM, 3))),
                report: None,
            }),
        ];
        let mut writer = AnswerWriter::new(1, &vote());
        let mut reader = AnswerReader::new(&vote());
        for answer in answers {
            let expected = format!("{answer:?}");
            let read = reader.read(writer.write(answer)).unwrap();
            assert_eq!(format!("{:?}", read.unwrap()), expected);
        }
        assert!(reader.read(writer.end()).unwrap().is_none());
        assert!(reader.read(ProxyAnswerPart::default()).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let open = schema::ProxyOpen {
            vote: Some(vote_to(&vote())),
            onward: vec![2],
        };
        let (mut reader, _) = RequestReader::open(&open).unwrap();
        let run = |term, first, last| schema::TermRun { term, first, last };
        for runs in [
            vec![run(TERM, 1, 2)],
            vec![run(TERM, 0, 3), run(TERM, 5, 6)],
            vec![run(TERM, 0, 3), run(5, 4, 4)],
            vec![run(TERM, 3, 0)],
        ] {
            let part = ProxyPart {
                runs,
                ..ProxyPart::default()
            };
            assert!(reader.read(&part).is_err(), "{part:?}");
        }
        let endless = ProxyPart {
            more: u64::MAX,
            ..ProxyPart::default()
        };
        assert!(reader.read(&endless).is_err());
        assert!(RequestReader::open(&schema::ProxyOpen::default()).is_err());
        let mut answers = AnswerReader::new(&vote());
        let nothing = ProxyAnswerPart {
            session: 1,
            answer: Some(schema::proxy_answer_part::Answer::Advance(0)),
        };
        assert!(answers.read(nothing).is_err());
    }
}
