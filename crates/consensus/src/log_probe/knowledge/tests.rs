//! Requests that are answered from a report, and requests that must never be.

use openraft::raft::StreamAppendError;
use raft_types::{MemberId, OpId, TermRun};

use super::*;

const WINDOW: Duration = Duration::from_millis(96);
const RTT: Duration = Duration::from_millis(60);

fn vote(term: u64) -> Vote {
    Vote::new_committed(term, MemberId(1))
}

fn id(term: u64, index: u64) -> LogId {
    OpId::new(term, index).into()
}

/// A log's report: runs as `(term, first, last)`.
fn report(vote: Vote, runs: &[(u64, u64, u64)]) -> LogReport {
    let runs = runs
        .iter()
        .map(|&(term, first, last)| TermRun { term, first, last });
    LogReport {
        vote: Some(vote),
        runs: runs.collect(),
    }
}

fn ask(previous: LogId, last: LogId) -> Outline {
    Outline {
        vote: vote(3),
        previous: Some(previous),
        last: Some(last),
    }
}

fn notice(previous: LogId) -> Outline {
    Outline {
        last: None,
        ..ask(previous, previous)
    }
}

fn conflict(at: LogId) -> Way {
    Way::Answer(Err(StreamAppendError::Conflict(at)))
}

const SEARCH: Way = Way::Wire { at_the_end: false };
const THE_REST: Way = Way::Wire { at_the_end: true };

/// The own log: 0 to 99 of term 1, 100 to 110 of term 3, which this member leads.
fn own() -> LogReport {
    report(vote(3), &[(1, 0, 99), (3, 100, 110)])
}

/// Returns the state after one exchange with a follower with this report, and the time when the exchange was sent.
fn after(theirs: &LogReport) -> (Knowledge, Instant) {
    let mut known = Knowledge::default();
    let sent = Instant::now();
    let asked = ask(id(1, 40), id(1, 48));
    assert_eq!(known.decide(&asked, sent, WINDOW), SEARCH);
    let exchange = known.begin(&vote(3), sent);
    let result = Err(StreamAppendError::Conflict(id(1, 40)));
    known.learn(&exchange, &result, Some((&own(), theirs)));
    (known, sent)
}

#[test]
fn every_step_of_the_search_is_answered_from_one_report() {
    // The follower lags, and the end of its log is of term 2, which no other log has.
    let theirs = report(vote(3), &[(1, 0, 30), (2, 31, 250)]);
    let (mut known, sent) = after(&theirs);
    let now = sent + RTT;
    let mut decide = |asked| known.decide(&asked, now, WINDOW);
    assert_eq!(
        decide(ask(id(1, 20), id(1, 28))),
        Way::Answer(Ok(Some(id(1, 28))))
    );
    assert_eq!(
        decide(ask(id(1, 22), id(1, 30))),
        Way::Answer(Ok(Some(id(1, 30))))
    );
    assert_eq!(
        decide(ask(id(1, 28), id(1, 36))),
        Way::AnswerAndEnd(id(1, 30))
    );
    assert_eq!(decide(ask(id(1, 31), id(1, 39))), conflict(id(1, 31)));
    assert_eq!(decide(ask(id(3, 105), id(3, 110))), conflict(id(3, 105)));
    assert_eq!(decide(ask(id(1, 30), id(1, 38))), THE_REST);
    assert_eq!(decide(notice(id(1, 30))), Way::Answer(Ok(Some(id(1, 30)))));
    assert_eq!(decide(notice(id(1, 31))), SEARCH);
}

#[test]
fn nothing_is_answered_without_an_exchange() {
    let mut known = Knowledge::default();
    assert!(known.is_blank(&vote(3)));
    assert_eq!(
        known.decide(&notice(id(1, 0)), Instant::now(), WINDOW),
        SEARCH
    );
    let (known, _) = after(&own());
    assert!(!known.is_blank(&vote(3)));
    assert!(known.is_blank(&vote(4)));
}

#[test]
fn rule_1_a_follower_of_a_later_leader_counts_for_nothing() {
    for stored in [
        Vote::new(4, MemberId(2)),
        Vote::new_committed(4, MemberId(2)),
    ] {
        let theirs = report(stored, &[(1, 0, 99), (3, 100, 105)]);
        let (mut known, sent) = after(&theirs);
        assert_eq!(
            known.decide(&ask(id(1, 90), id(1, 98)), sent, WINDOW),
            SEARCH
        );
    }
    let without_vote = LogReport {
        vote: None,
        ..own()
    };
    let (mut known, sent) = after(&without_vote);
    assert_eq!(
        known.decide(&ask(id(1, 90), id(1, 98)), sent, WINDOW),
        SEARCH
    );
}

#[test]
fn rule_1_a_log_that_a_later_leader_rewrites_is_not_compared() {
    let mut known = Knowledge::default();
    let sent = Instant::now();
    let exchange = known.begin(&vote(3), sent);
    // Term 4 put its own entries into the own log.
    let own = report(
        Vote::new_committed(4, MemberId(2)),
        &[(1, 0, 99), (4, 100, 110)],
    );
    let theirs = report(vote(3), &[(1, 0, 99)]);
    let result = Ok(None);
    known.learn(&exchange, &result, Some((&own, &theirs)));
    assert_eq!(
        known.decide(&ask(id(1, 90), id(1, 98)), sent, WINDOW),
        SEARCH
    );
}

/// Figure 8 of the Raft paper, with five members. Each log is a prefix of the entries below, listed by their terms.
///
/// Member 1 leads term 2. Its entry at index 1 is on members 1 and 2. Member 5 leads term 3, with its own entry at index 1, which no other
/// member gets. Member 2 leads term 4. Member 3 follows it, and receives the entry of term 2 from it. Only then does member 3's answer of
/// term 2 reach member 1, with member 3's present log. Member 5 can still win term 5, with the votes of members 3, 4 and 5.
#[test]
fn figure_8_counting_a_follower_of_a_later_leader_would_lose_a_commit() {
    let leader_of_2 = Vote::new_committed(2, MemberId(1));
    let entry = id(2, 1);
    let own = report(leader_of_2, &[(1, 0, 0), (2, 1, 1)]);
    let asked = Outline {
        vote: leader_of_2,
        previous: Some(id(1, 0)),
        last: Some(entry),
    };
    let counted = |theirs: &LogReport| {
        let mut known = Knowledge::default();
        let sent = Instant::now();
        let exchange = known.begin(&leader_of_2, sent);
        known.learn(&exchange, &Ok(Some(id(1, 0))), Some((&own, theirs)));
        known.decide(&asked, sent, WINDOW) == Way::Answer(Ok(Some(entry)))
    };
    let in_term_4 = report(Vote::new_committed(4, MemberId(2)), &[(1, 0, 0), (2, 1, 1)]);
    assert!(!counted(&in_term_4), "rule 1");

    // The same without rule 1, or with the vote read at another moment than the log:
    let without_the_rule = LogReport {
        vote: Some(leader_of_2),
        ..in_term_4.clone()
    };
    assert!(counted(&without_the_rule), "1, 2 and 3 of five: committed");
    let last_of_3 = in_term_4.runs.last().map(|run| (run.term, run.last));
    let last_of_5 = (3, 1);
    assert!(Some(last_of_5) > last_of_3, "3 votes for 5, which lacks it");
}

#[test]
fn rule_2_the_window_begins_with_the_sending() {
    let (mut known, sent) = after(&own());
    let asked = ask(id(1, 90), id(1, 98));
    let answered = Way::Answer(Ok(Some(id(1, 98))));
    let almost = sent + WINDOW - Duration::from_millis(1);
    assert_eq!(known.decide(&asked, almost, WINDOW), answered);
    assert_eq!(known.decide(&asked, sent + WINDOW, WINDOW), SEARCH);
    // Another exchange, whose answer arrived after the window of the first one.
    let again = sent + WINDOW;
    let exchange = known.begin(&vote(3), again);
    known.learn(&exchange, &Ok(Some(id(1, 98))), None);
    assert_eq!(known.decide(&asked, again + RTT, WINDOW), answered);
    // The answer to the older exchange arrives last. It does not shorten or extend the window.
    let older = Exchange { sent, ..exchange };
    known.learn(&older, &Ok(Some(id(1, 98))), None);
    assert_eq!(known.decide(&asked, again + RTT, WINDOW), answered);
    assert_eq!(known.decide(&asked, again + WINDOW, WINDOW), SEARCH);
}

#[test]
fn the_window_is_shorter_than_the_lease_and_a_heartbeat() {
    for heartbeat in [10, 100, 500, 10_000].map(Duration::from_millis) {
        for lease in [heartbeat * 3 / 2, heartbeat * 8 / 5, heartbeat * 20] {
            let window = window(&Timers { heartbeat, lease });
            assert!(window <= heartbeat && window <= lease * 2 / 3, "{lease:?}");
        }
    }
}

#[test]
fn a_failed_call_and_a_snapshot_make_it_forget() {
    let asked = ask(id(1, 90), id(1, 98));
    let (mut known, sent) = after(&own());
    let under_way = known.begin(&vote(3), sent);
    known.forget();
    assert_eq!(known.decide(&asked, sent, WINDOW), SEARCH);
    // Answers to requests that were in flight show nothing about the follower now.
    known.learn(&under_way, &Ok(Some(id(1, 98))), Some((&own(), &own())));
    assert_eq!(known.decide(&asked, sent, WINDOW), SEARCH);
    // A higher vote ends the leadership.
    let (mut known, sent) = after(&own());
    let exchange = known.begin(&vote(3), sent);
    let higher = Err(StreamAppendError::HigherVote(Vote::new(4, MemberId(2))));
    known.learn(&exchange, &higher, None);
    assert_eq!(known.decide(&asked, sent, WINDOW), SEARCH);
}

#[test]
fn matching_points_never_decrease() {
    // The own disk is slow: the own report has fewer entries than the follower acknowledged.
    let (mut known, sent) = after(&own());
    known.acknowledge(&vote(3), Some(id(3, 115)));
    assert_eq!(
        known.decide(&ask(id(3, 115), id(3, 116)), sent, WINDOW),
        THE_REST
    );
    known.forget();
    let exchange = known.begin(&vote(3), sent);
    known.learn(&exchange, &Ok(None), Some((&own(), &own())));
    let way = known.decide(&ask(id(3, 115), id(3, 116)), sent, WINDOW);
    assert_eq!(way, THE_REST, "no conflict at what is acknowledged");
}

#[test]
fn a_follower_that_lost_acknowledged_entries_is_recorded() {
    let (mut known, sent) = after(&own());
    known.acknowledge(&vote(3), Some(id(3, 110)));
    // The follower's process has ended, so calls fail. It restarts without its last five entries.
    known.forget();
    let lost = report(vote(3), &[(1, 0, 99), (3, 100, 105)]);
    let exchange = known.begin(&vote(3), sent);
    let conflict = Err(StreamAppendError::Conflict(id(3, 110)));
    known.learn(&exchange, &conflict, Some((&own(), &lost)));
    // The engine searches again, and no request is answered from earlier knowledge.
    let asked = ask(id(1, 40), id(1, 48));
    assert_eq!(known.decide(&asked, sent, WINDOW), SEARCH);
    let exchange = known.begin(&vote(3), sent);
    known.learn(&exchange, &Ok(Some(id(1, 48))), Some((&own(), &lost)));
    let way = known.decide(&ask(id(3, 102), id(3, 110)), sent, WINDOW);
    assert_eq!(way, Way::AnswerAndEnd(id(3, 105)));
    let way = known.decide(&ask(id(3, 105), id(3, 110)), sent, WINDOW);
    assert_eq!(way, THE_REST, "the lost entries go out");
}

#[test]
fn a_conflict_after_the_matching_point_changes_nothing() {
    let theirs = report(vote(3), &[(1, 0, 99), (3, 100, 105)]);
    let (mut known, sent) = after(&theirs);
    known.lacks(id(3, 106));
    let way = known.decide(&ask(id(3, 105), id(3, 110)), sent, WINDOW);
    assert_eq!(way, THE_REST);
    // A heartbeat names the entry that the engine has recorded.
    known.acknowledge(&vote(3), Some(id(3, 105)));
    known.lacks(id(3, 105));
    let way = known.decide(&ask(id(1, 40), id(1, 48)), sent, WINDOW);
    assert_eq!(way, SEARCH);
}

#[test]
fn an_answer_counts_before_the_next_request_is_decided() {
    let theirs = report(vote(3), &[(1, 0, 99)]);
    let (mut known, sent) = after(&theirs);
    let exchange = known.begin(&vote(3), sent);
    known.learn(&exchange, &Ok(Some(id(3, 108))), None);
    let way = known.decide(&ask(id(3, 108), id(3, 110)), sent, WINDOW);
    assert_eq!(
        way, THE_REST,
        "not a conflict, which the older report would give"
    );
}

#[test]
fn an_earlier_leadership_gets_nothing_and_teaches_nothing() {
    let (mut known, sent) = after(&own());
    let earlier = Outline {
        vote: vote(2),
        ..ask(id(1, 90), id(1, 98))
    };
    assert_eq!(known.decide(&earlier, sent, WINDOW), SEARCH);
    let exchange = known.begin(&vote(2), sent);
    known.learn(&exchange, &Ok(Some(id(3, 300))), None);
    let way = known.decide(&ask(id(1, 90), id(1, 98)), sent, WINDOW);
    assert_eq!(way, Way::Answer(Ok(Some(id(1, 98)))));
    // A later leadership begins without knowledge.
    let later = Outline {
        vote: vote(4),
        ..ask(id(1, 90), id(1, 98))
    };
    assert_eq!(known.decide(&later, sent, WINDOW), SEARCH);
    assert_eq!(
        known.decide(&ask(id(1, 90), id(1, 98)), sent, WINDOW),
        SEARCH
    );
}

#[test]
fn a_request_waits_for_entries_sent_ahead() {
    let mut known = Knowledge::default();
    let sent = Instant::now();
    let begun = known.begin(&vote(3), sent);
    known.push(&begun, id(3, 105));
    let mut asked = ask(id(1, 40), id(1, 48));
    assert_eq!(known.decide(&asked, sent, WINDOW), Way::Wait);
    known.learn(&begun, &Ok(Some(id(3, 103))), None);
    assert_eq!(
        known.decide(&asked, sent, WINDOW),
        Way::Answer(Ok(Some(id(1, 48))))
    );
    asked = ask(id(3, 103), id(3, 105));
    assert_eq!(known.decide(&asked, sent, WINDOW), Way::Wait);
    // An entry that was not sent ahead is sent to the follower, and ends the push.
    asked = ask(id(3, 103), id(3, 106));
    assert!(known.is_pushing(&begun));
    assert_eq!(known.decide(&asked, sent, WINDOW), THE_REST);
    assert!(!known.is_pushing(&begun));
    known.push(&begun, id(3, 105));
    known.end_push(&begun);
    asked = ask(id(3, 103), id(3, 105));
    assert_eq!(known.decide(&asked, sent, WINDOW), THE_REST);
}
