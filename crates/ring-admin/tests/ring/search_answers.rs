//! Tests each request of a leader's clients while they search for the last matching entry, and the answers that the clients give locally.
//! The test scripts the follower's answers. The rules have separate unit tests without a network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consensus::Timers;
use consensus::log_probe::{
    Answered, Asked, Lane, LogProbe, MemberClient, MemberNetwork, RpcResult,
};
use futures::{StreamExt, stream};
use openraft::errors::{RPCError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use raft_types::{
    AppEntry, Entry, EntryPayload, FileStart, LogId, LogReport, MemberId, MemberRecord, OpId,
    OwnLog, StoredMembership, TermRun, TransactionPayload, TypeConfig, Vote,
};
use testkit::network::Port;

use crate::support::memory_log::MemoryDisk;
use crate::support::scripted_network::{Lane as Carried, Script};

const TIMERS: Timers = Timers::from_heartbeat(Duration::from_millis(100));
/// How long a client may answer locally after an exchange: three fifths of the lease of 160 ms.
const WINDOW: Duration = Duration::from_millis(96);
const FOLLOWER: MemberId = MemberId(2);

type Client = Box<dyn MemberClient>;
type Answers = Vec<Result<StreamAppendResult<TypeConfig>, String>>;

fn vote() -> Vote {
    Vote::new_committed(3, MemberId(1))
}

/// Returns the id of an entry: indexes 0 to 99 are of term 1, later ones of term 3.
fn id(index: u64) -> LogId {
    OpId::new(if index < 100 { 1 } else { 3 }, index).into()
}

fn entry(index: u64) -> Entry {
    Entry {
        log_id: id(index),
        payload: EntryPayload::Blank,
    }
}

/// Returns a request with the entries of a range, which may be empty.
fn request(entries: std::ops::Range<u64>) -> AppendEntriesRequest<TypeConfig> {
    AppendEntriesRequest {
        vote: vote(),
        prev_log_id: entries.start.checked_sub(1).map(id),
        entries: entries.map(entry).collect(),
        leader_commit: None,
    }
}

/// Returns the report of a follower whose log matches the leader's log up to `upto`.
fn report(upto: u64) -> Option<LogReport> {
    let run = |term, first, last| TermRun { term, first, last };
    Some(LogReport {
        vote: Some(vote()),
        runs: vec![run(1, 0, upto), run(2, upto + 1, upto + 500)],
    })
}

fn conflict(index: u64, report: Option<LogReport>) -> RpcResult<Answered> {
    let result = Err(StreamAppendError::Conflict(id(index)));
    Ok(Answered { result, report })
}

fn matching(index: u64) -> RpcResult<Answered> {
    let result = Ok(Some(id(index)));
    Ok(Answered {
        result,
        report: None,
    })
}

/// Returns the answer to the query that precedes entries sent ahead.
fn told(report: Option<LogReport>) -> RpcResult<Answered> {
    let result = Ok(None);
    Ok(Answered { result, report })
}

/// A leader with a log of the entries 0 to 110, and the factory of its clients.
struct Leader {
    script: Script,
    factory: LogProbe,
}

/// A log with unreadable entries, so that the leader sends none ahead and adds none to a request.
struct Unreadable(MemoryDisk);

impl OwnLog for Unreadable {
    fn report(&self) -> LogReport {
        self.0.report()
    }

    fn entries(&self, _: std::ops::Range<u64>) -> raft_types::ReadingEntries<'_> {
        Box::pin(async { Err(std::io::Error::other("not now")) })
    }

    fn appended(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.appended()
    }
}

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::default();
    disk.preload(vote(), (0..=110).map(entry));
    disk
}

impl Leader {
    fn over(own: Arc<dyn OwnLog>) -> Self {
        let script = Script::default();
        let port = Port::new(MemberId(1), script.clone());
        let factory = LogProbe::new(port, own, &TIMERS);
        Self { script, factory }
    }

    /// Returns a leader whose clients answer locally, and send only the entries that the engine requests.
    fn plain() -> Self {
        Self::over(Arc::new(Unreadable(disk())))
    }

    fn on(&self, lane: Lane) -> Client {
        let record = MemberRecord::default();
        self.factory.client(lane, FOLLOWER, &record)
    }

    fn client(&self) -> Client {
        self.on(Lane::Entries)
    }

    /// Returns a client after one exchange with a follower whose log matches up to `upto`.
    async fn knowing(&mut self, upto: u64) -> Client {
        let mut client = self.client();
        self.script.answers(conflict(49, report(upto)));
        let answers = ask(&mut client, [request(50..58)]).await;
        assert_eq!(answers, [Ok(Err(StreamAppendError::Conflict(id(49))))]);
        let sent = self.script.sent();
        assert_eq!(sent.len(), 1);
        assert!(sent[0].1.wants_report);
        client
    }

    /// Returns the ranges of entries that were sent since the last call.
    fn sent(&self) -> Vec<(u64, u64)> {
        let sent = self
            .script
            .sent()
            .into_iter()
            .map(|(_, asked)| asked.request.entries);
        sent.filter_map(|entries| {
            Some((entries.first()?.log_id.index, entries.last()?.log_id.index))
        })
        .collect()
    }
}

/// Lets other tasks run until all of them wait.
async fn a_moment() {
    tokio::time::sleep(Duration::from_micros(1)).await;
}

/// Sends a stream of requests, and returns the answers until the stream ends or no answer arrives.
async fn ask(
    client: &mut Client,
    requests: impl IntoIterator<Item = AppendEntriesRequest<TypeConfig>, IntoIter: Send + 'static>,
) -> Answers {
    let option = RPCOption::new(TIMERS.heartbeat);
    let requests = requests
        .into_iter()
        .map(|request| Asked::new(request, false));
    let requests = stream::iter(requests.collect::<Vec<_>>()).boxed();
    let mut answers = client.stream(requests, option).await.unwrap();
    let mut taken = Vec::new();
    let silence = Duration::from_millis(1);
    while let Ok(Some(answer)) = tokio::time::timeout(silence, answers.next()).await {
        let answer = answer.map(|answered| answered.result);
        taken.push(answer.map_err(|error| error.to_string()));
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn one_exchange_answers_every_step_and_leaves_the_last_one() {
    let mut leader = Leader::plain();
    let mut client = leader.knowing(70).await;
    let steps = [
        (40, Ok(Some(id(47)))),
        (60, Ok(Some(id(67)))),
        (72, Err(71)),
        (90, Err(89)),
    ];
    for (from, expected) in steps {
        let answers = ask(&mut client, [request(from..from + 8)]).await;
        let expected = expected.map_err(|at| StreamAppendError::Conflict(id(at)));
        assert_eq!(answers, [Ok(expected)], "{from}");
    }
    assert_eq!(leader.sent(), []);
    leader.script.answers(matching(78));
    let answers = ask(&mut client, [request(71..79)]).await;
    assert_eq!(answers, [Ok(Ok(Some(id(78))))]);
    assert_eq!(leader.sent(), [(71, 78)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_part_ends_its_stream() {
    let mut leader = Leader::plain();
    let mut client = leader.knowing(70).await;
    // If the stream continued after the partial answer, the log would have a gap.
    let answers = ask(&mut client, [request(66..74), request(74..80)]).await;
    assert_eq!(answers, [Ok(Ok(Some(id(70))))]);
    assert_eq!(leader.sent(), []);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_sent_something_answers_nothing_itself() {
    let mut leader = Leader::plain();
    let mut client = leader.knowing(70).await;
    leader.script.answers(matching(78));
    let answers = ask(&mut client, [request(71..79), request(60..68)]).await;
    // The second request is not answered locally: it waits for the follower's answer, in order.
    assert_eq!(answers, [Ok(Ok(Some(id(78))))]);
    let sent = leader.script.sent();
    let wanted: Vec<_> = sent.iter().map(|(_, asked)| asked.wants_report).collect();
    assert_eq!(wanted, [true, false], "one report a stream");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_known_before_it_is_handed_on() {
    let mut leader = Leader::plain();
    let mut client = leader.knowing(70).await;
    leader.script.answers(matching(78));
    ask(&mut client, [request(71..79)]).await;
    leader.sent();
    // If only the report counted, the client would answer with a conflict at an entry that the follower has acknowledged.
    let answers = ask(&mut client, [request(79..87)]).await;
    assert_eq!(answers, []);
    assert_eq!(leader.sent(), [(79, 86)]);
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_given_after_the_window() {
    let leader = Leader::plain();
    let mut client = leader.client();
    let answers = {
        let option = RPCOption::new(TIMERS.heartbeat);
        let requests = stream::iter([Asked::new(request(50..58), false)]).boxed();
        let mut answers = client.stream(requests, option).await.unwrap();
        // The exchange itself takes 60 ms.
        leader.script.answers(conflict(49, report(70)));
        let answer = answers.next();
        tokio::time::sleep(Duration::from_millis(60)).await;
        answer.await
    };
    assert!(answers.is_some_and(|answer| answer.is_ok()));
    leader.sent();
    tokio::time::sleep(WINDOW - Duration::from_millis(1)).await;
    let step = || [request(40..48)];
    assert_eq!(ask(&mut client, step()).await, [Ok(Ok(Some(id(47))))]);
    assert_eq!(leader.sent(), []);
    tokio::time::sleep(Duration::from_millis(1)).await;
    // After the window, no local answer may be given: the engine would count it for the lease, and the follower may have voted for another
    // member by then.
    assert_eq!(ask(&mut client, step()).await, []);
    assert_eq!(leader.sent(), [(40, 47)]);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_are_always_real() {
    let mut leader = Leader::plain();
    let _client = leader.knowing(70).await;
    let mut heartbeats = leader.on(Lane::Heartbeats);
    assert_eq!(ask(&mut heartbeats, [request(60..60)]).await, []);
    let sent = leader.script.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].0, sent[0].1.wants_report),
        (Carried::Heartbeats, false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_commits_is_answered_at_once_and_passed_on() {
    let mut leader = Leader::plain();
    let mut client = leader.knowing(70).await;
    let notice = AppendEntriesRequest {
        leader_commit: Some(id(65)),
        ..request(60..60)
    };
    assert_eq!(ask(&mut client, [notice]).await, [Ok(Ok(Some(id(59))))]);
    tokio::task::yield_now().await;
    let sent = leader.script.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, Carried::Heartbeats);
    assert_eq!(sent[0].1.request.leader_commit, Some(id(65)));
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_makes_it_forget() {
    let mut leader = Leader::plain();
    let mut client = leader.knowing(70).await;
    let down = RPCError::Unreachable(Unreachable::from_string("down"));
    leader.script.answers(Err(down));
    let answers = ask(&mut client, [request(71..79)]).await;
    assert!(matches!(&answers[..], [Err(_)]), "{answers:?}");
    leader.sent();
    assert_eq!(ask(&mut client, [request(40..48)]).await, []);
    assert_eq!(leader.sent(), [(40, 47)]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_makes_it_forget_and_is_not_contradicted() {
    let mut leader = Leader::plain();
    let mut client = leader.knowing(70).await;
    let mut sender = leader.on(Lane::Starts);
    let start = FileStart {
        before: id(90).into(),
        membership: StoredMembership::default(),
        header: Bytes::new(),
    };
    let option = RPCOption::new(TIMERS.heartbeat);
    sender.begin(vote(), Some(start), option).await.unwrap();
    assert_eq!(ask(&mut client, [request(40..48)]).await, []);
    assert_eq!(leader.sent(), [(40, 47)]);
    // The follower has answered this exchange with its log from before the new start.
    leader.script.answers(conflict(49, report(70)));
    ask(&mut client, [request(50..58)]).await;
    leader.sent();
    assert_eq!(ask(&mut client, [request(91..99)]).await, []);
    assert_eq!(leader.sent(), [(91, 98)], "not a conflict");
}

#[tokio::test(start_paused = true)]
async fn a_widened_request_is_answered_as_asked() {
    let leader = Leader::over(Arc::new(disk()));
    let mut client = leader.client();
    // The follower refuses the entries that were sent ahead.
    leader.script.answers(told(report(20)));
    leader.script.answers(conflict(46, None));
    let answers = ask(&mut client, [request(0..8)]).await;
    assert_eq!(answers, [Ok(Ok(Some(id(7))))]);
    a_moment().await;
    assert_eq!(leader.sent(), [(47, 110)]);
    leader.script.answers(matching(110));
    let answers = ask(&mut client, [request(21..29)]).await;
    assert_eq!(
        answers,
        [Ok(Ok(Some(id(28))))],
        "no more than the engine sent"
    );
    assert_eq!(leader.sent(), [(21, 110)]);
    // The rest of the search is answered locally, and so is the start of the stream after it.
    for (from, upto) in [(60, 68), (103, 111)] {
        let answers = ask(&mut client, [request(from..upto)]).await;
        assert_eq!(answers, [Ok(Ok(Some(id(upto - 1))))]);
    }
    assert_eq!(leader.sent(), []);
}

/// A query needs one round trip, but entries may need several.
#[tokio::test(start_paused = true)]
async fn the_matching_point_is_known_before_the_entries_sent_ahead_arrive() {
    let leader = Leader::over(Arc::new(disk()));
    let mut client = leader.client();
    leader.script.answers(told(report(70)));
    let steps = [(40, Some(Ok(47))), (90, Some(Err(89))), (71, None)];
    for (from, expected) in steps {
        let answers = ask(&mut client, [request(from..from + 8)]).await;
        let expected = expected.map(|expected| {
            let expected = expected.map(|at| Some(id(at)));
            Ok(expected.map_err(|at| StreamAppendError::Conflict(id(at))))
        });
        assert_eq!(answers, Vec::from_iter(expected), "{from}");
    }
    let sent = leader.script.sent();
    let asked = |(_, asked): &(Carried, Asked)| (asked.request.entries.len(), asked.wants_report);
    assert_eq!(
        Vec::from_iter(sent.iter().map(asked)),
        [(0, true), (64, false)]
    );
}

/// The entries sent ahead are limited to the first flight of a new connection: more of them would delay entries that are appended next. At
/// least one entry is sent.
#[tokio::test(start_paused = true)]
async fn entries_sent_ahead_fit_the_first_flight_except_a_single_one() {
    for (bytes, first) in [(1_000, 102), (20_000, 110)] {
        let disk = MemoryDisk::default();
        let transaction = |index| Entry {
            log_id: id(index),
            payload: EntryPayload::Normal(AppEntry::Transaction(TransactionPayload::seal(
                Bytes::from(vec![0; bytes]),
            ))),
        };
        disk.preload(vote(), (0..=110).map(transaction));
        let leader = Leader::over(Arc::new(disk));
        let mut client = leader.client();
        leader.script.answers(told(report(110)));
        ask(&mut client, [request(0..8)]).await;
        a_moment().await;
        assert_eq!(leader.sent(), [(first, 110)]);
    }
}

#[tokio::test(start_paused = true)]
async fn entries_appended_in_the_meantime_are_sent_ahead_too() {
    let own = disk();
    let leader = Leader::over(Arc::new(own.clone()));
    let mut client = leader.client();
    leader.script.answers(told(None));
    let option = RPCOption::new(TIMERS.heartbeat);
    let requests = stream::iter([Asked::new(request(50..58), false)]).boxed();
    let mut answers = client.stream(requests, option).await.unwrap();
    // The follower's log is unknown yet, so the search step waits.
    let silent = tokio::time::timeout(Duration::from_millis(5), answers.next()).await;
    assert!(silent.is_err());
    drop(answers);
    assert_eq!(leader.sent(), [(47, 110)]);
    own.preload(vote(), [entry(111)]);
    leader.script.answers(told(None));
    leader.script.answers(matching(111));
    // The script gives its answers in order, and the first one is lost here. So the test continues with a client of a new term.
    let mut client = leader.client();
    let later = Vote::new_committed(4, MemberId(1));
    own.preload(later, []);
    let mut asked = request(50..58);
    asked.vote = later;
    assert_eq!(ask(&mut client, [asked]).await, [Ok(Ok(Some(id(57))))]);
    assert_eq!(leader.sent(), [(48, 111)]);
    leader.script.answers(matching(112));
    own.preload(later, [entry(112)]);
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(leader.sent(), [(112, 112)]);
    let mut asked = request(112..113);
    asked.vote = later;
    assert_eq!(ask(&mut client, [asked]).await, [Ok(Ok(Some(id(112))))]);
    assert_eq!(leader.sent(), []);
}
