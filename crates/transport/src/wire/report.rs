//! The report of a follower's log, which travels with an answer.

use consensus::log_probe::Answered;
use openraft::raft::StreamAppendResult;
use raft_types::{LogReport, TermRun, TypeConfig};

use super::error::WireError;
use super::vote::{append_answer, append_result, vote_from, vote_to};
use crate::schema;

/// An answer with the report that was asked for.
pub(crate) fn reported_answer(
    result: StreamAppendResult<TypeConfig>,
    report: Option<&LogReport>,
) -> schema::AppendAnswer {
    schema::AppendAnswer {
        report: report.map(report_to),
        ..append_answer(result)
    }
}

/// What arrived.
pub(crate) fn answered_from(mut answer: schema::AppendAnswer) -> Result<Answered, WireError> {
    let report = answer.report.take().map(report_from);
    Ok(Answered {
        result: append_result(answer)?,
        report,
    })
}

fn report_to(report: &LogReport) -> schema::LogReport {
    let runs = report.runs.iter().map(|run| schema::TermRun {
        term: run.term,
        first: run.first,
        last: run.last,
    });
    schema::LogReport {
        vote: report.vote.as_ref().map(vote_to),
        runs: runs.collect(),
    }
}

fn report_from(report: schema::LogReport) -> LogReport {
    let runs = report.runs.into_iter().map(|run| TermRun {
        term: run.term,
        first: run.first,
        last: run.last,
    });
    LogReport {
        vote: report.vote.map(vote_from),
        runs: runs.collect(),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use raft_types::{MemberId, OpId, Vote};

    use super::*;

    #[test]
    fn a_report_arrives_as_it_was_made() {
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
            let sent = reported_answer(result.clone(), report.as_ref());
            let answered = answered_from(sent).unwrap();
            assert_eq!((answered.result, answered.report), (result, report));
        }
        assert!(answered_from(schema::AppendAnswer::default()).is_err());
    }

    #[test]
    fn an_answer_without_a_report_has_not_a_byte_of_it() {
        let result = Ok(Some(OpId::new(7, 101).into()));
        let plain = append_answer(result.clone()).encoded_len();
        assert_eq!(reported_answer(result.clone(), None).encoded_len(), plain);
        assert!(reported_answer(result, Some(&LogReport::default())).encoded_len() > plain);
    }
}
