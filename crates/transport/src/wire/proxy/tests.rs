//! Tests of proxy sessions: the two ends agree on all parts, and invalid parts are refused.

use consensus::log_probe::Answered;
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

fn request(previous: Option<LogId>, runs: &[(u64, u64)], commit: Option<LogId>) -> ProxyRequest {
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
            let (reader, route) = RequestReader::open(part.open.as_ref().unwrap()).unwrap();
            assert_eq!(route, onward);
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
fn an_answer_with_the_largest_index_round_trips() {
    let (mut writer, mut reader) = (AnswerWriter::new(9, &vote()), AnswerReader::new(&vote()));
    for index in [4, u64::MAX, 5] {
        let answer = ProxyAnswer::Answered(Answered {
            result: Ok(Some(id(TERM, index))),
            report: None,
        });
        let read = reader.read(writer.write(answer)).unwrap();
        let Some(ProxyAnswer::Answered(answered)) = read else {
            panic!("{read:?}");
        };
        assert_eq!(answered.result, Ok(Some(id(TERM, index))));
    }
}

#[test]
fn an_entry_of_a_session_takes_eight_bytes_in_both_directions() {
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
        ProxyAnswer::SentOn {
            upto: 500,
            moves: false,
        },
        ProxyAnswer::SentOn {
            upto: 501,
            moves: true,
        },
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
fn impossible_requests_are_refused() {
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
        moves: false,
        answer: Some(schema::proxy_answer_part::Answer::Advance(0)),
    };
    assert!(answers.read(nothing).is_err());
}
