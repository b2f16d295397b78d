//! All sentences in one file, for review: `sentences.txt` in this folder. Run the test with `UPDATE_SENTENCES=1` to write the file again.

use std::fmt::Display;
use std::time::Duration;

use consensus::quorum::{MoveObstacle, PolicyGap};
use consensus::{
    DatabaseState, Fault, HistoryEntry, HistoryEvent, MockElection, MockVote, MoveError, Named,
    NotServing, Term, TransferRefusal,
};
use member::protocol::{MysqldOrder, OperatorCommand, Refusal, ReplicateFrom};
use member::status::sample::{database_leader, witness_follower};
use member::status::{
    ErrantTransactions, FailingHook, MemberView, MysqlView, MysqldState, NotReady, PauseView,
    RoleState, WaitingFor, WriteFenceState,
};
use raft_types::{FormatVersion, MemberId, MemberKind, OpId, Region, UnixSeconds};
use ring_admin::{
    PromotionError, PromotionRefusal, ReconfigurationError, RepairRefusal, ScheduledSwitchover,
};
use serde_json::json;

use crate::operator::{Directory, MemberReport, RingReport};
use crate::text::event::{Change, LedAfter};
use crate::text::member::{MysqldKind, mysqld, notes};
use crate::text::{history, ring};

#[test]
fn every_sentence_is_in_the_file() {
    let refusals = |of: Vec<Refusal>| of.iter().map(refused).collect();
    let sections: [(&str, Vec<String>); 15] = [
        ("The ring", rings()),
        ("Members", members()),
        ("States of a mysqld", states_of_a_mysqld()),
        ("Roles of a mysqld", texts(roles_of_a_mysqld())),
        ("Write fences", texts(write_fences())),
        ("Health checks answered with no", texts(not_ready())),
        ("Events", events()),
        ("History", histories()),
        ("Commands", commands()),
        ("Orders about a mysqld", texts(orders())),
        ("Refused promotions", refusals(promotions())),
        (
            "Promotions that failed partway",
            refusals(failed_promotions()),
        ),
        ("Refused changes of the members", refusals(changes())),
        ("Refused repairs of the quorum", refusals(repairs())),
        ("Refused pauses", refusals(pauses())),
    ];
    let section =
        |(title, texts): (&str, Vec<String>)| format!("# {title}\n{}\n", texts.join("\n"));
    let all = sections.map(section).join("\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/text/sentences.txt");
    if std::env::var_os("UPDATE_SENTENCES").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    let file = std::fs::read_to_string(path).unwrap();
    for (expected, text) in file.lines().zip(all.lines()) {
        assert_eq!(text, expected);
    }
    assert_eq!(all, file);
}

const TWO: MemberId = MemberId(2);
const THREE: MemberId = MemberId(3);

fn north() -> Region {
    Region("north".into())
}

fn texts<T: Display>(values: Vec<T>) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

/// Returns a refusal as the command line prints it, with its exit code.
fn refused(refusal: &Refusal) -> String {
    let failure = Directory::default().failure(refusal);
    let advice = match failure.advice.as_str() {
        "" => String::new(),
        advice => format!(" | {advice}"),
    };
    format!("{:?}: {}{advice}", failure.exit, failure.what)
}

fn report(leader: MemberView, witness: Result<MemberView, String>) -> RingReport {
    let asked = vec![
        MemberReport::sample(1, "db-1", Ok(leader)),
        MemberReport::sample(2, "witness-1", Ok(witness_follower())),
        MemberReport::sample(3, "witness-2", witness),
    ];
    RingReport::new("orders", asked)
}

fn pause(until: Option<u64>, reason: &str) -> PauseView {
    PauseView {
        primary: MemberId(1),
        since: UnixSeconds(1_000_000_000),
        until: until.map(UnixSeconds),
        by: "anna".into(),
        reason: reason.into(),
        age_seconds: 7_200,
    }
}

fn rings() -> Vec<String> {
    let quorum = |report: &RingReport| {
        let quorum = ring::quorum(report);
        let fix = quorum.fix.map(|fix| format!(" | {fix}"));
        let (begins, rest) = (quorum.begins, quorum.rest);
        format!(
            "{:?}: {begins}{rest}{}",
            quorum.level,
            fix.unwrap_or_default()
        )
    };
    let silent = || Err("connection refused".to_owned());
    let mut without_mysqld = database_leader();
    without_mysqld.mysql.as_mut().unwrap().state = MysqldState::Held;
    let mut lost = database_leader();
    lost.serving = false;
    lost.quorum.lost_for_seconds = Some(75.0);
    let lost = vec![
        MemberReport::sample(1, "db-1", Ok(lost)),
        MemberReport::sample(2, "witness-1", silent()),
        MemberReport::sample(3, "witness-2", silent()),
    ];
    let unknown = vec![MemberReport::sample(1, "db-1", silent())];
    let mut scheduled = database_leader();
    scheduled.scheduled_switchover = Some(ScheduledSwitchover {
        to: TWO,
        at: UnixSeconds(1_000_000_000),
        by: "anna".into(),
    });
    vec![
        quorum(&report(database_leader(), Ok(witness_follower()))),
        quorum(&report(without_mysqld, Ok(witness_follower()))),
        quorum(&RingReport::new("orders", lost)),
        quorum(&RingReport::new("orders", unknown)),
        ring::paused(&pause(Some(1_000_003_600), "new disks"), "db-1"),
        ring::paused(&pause(None, ""), "db-1"),
        ring::forgotten_pause(&pause(None, "")).unwrap(),
        ring::scheduled(&scheduled).unwrap(),
    ]
}

fn members() -> Vec<String> {
    type Edit<T> = fn(&mut T);
    let member: [Edit<MemberView>; 12] = [
        |view| view.fault = Some("the disk is gone".into()),
        |view| {
            view.serving = false;
            view.not_serving = Some("no quorum answers".into());
        },
        |view| view.not_serving = Some("its mysqld is down".into()),
        |view| view.stays_out_of_elections = Some("its log is older than its vote".into()),
        |view| view.formats.as_mut().unwrap().refused = Some("the ring's format is 2".into()),
        |view| view.log.unreadable = vec!["binlog.000003 is damaged".into()],
        |view| (view.log.disk_full, view.log.disk_has_no_inodes) = (true, true),
        |view| view.log.disk_full = true,
        |view| view.log.disk_busy_ms = 7_000,
        |view| (view.log.disk_alarm, view.log.disk_left_bytes) = (true, 0),
        |view| view.log.disk_alarm = true,
        |view| {
            view.hooks.as_mut().unwrap().failing = vec![FailingHook {
                hook: "on_primary".into(),
                failures: 3,
                why: "exit status: 1".into(),
            }]
        },
    ];
    let mysqld: [Edit<MysqlView>; 8] = [
        |mysql| mysql.trouble = Some("it does not answer".into()),
        |mysql| {
            mysql.trouble = Some("it has executed transactions of its own".into());
            mysql.errant = Some(ErrantTransactions {
                transactions: 2,
                gtids: "u:7-8".into(),
            });
        },
        |mysql| {
            mysql.role = RoleState::Waiting {
                what: WaitingFor::Writers,
            }
        },
        |mysql| mysql.offline = Some("no quorum of the ring answers".into()),
        |mysql| mysql.demotion = Some("no commit finishes".into()),
        |mysql| {
            mysql.write_fence = WriteFenceState::Closed {
                why: "another session has closed it".into(),
            }
        },
        |mysql| mysql.warnings = vec!["a table has no transactions".into()],
        |mysql| {
            mysql.protected = false;
            mysql.unprotected_because = vec!["its timeout is 10 s".into()];
        },
    ];
    let noted = |view: MemberView| notes(&report(view, Ok(witness_follower())).members[0]);
    let silent = report(database_leader(), Err("connection refused".into()));
    let mut all = notes(&silent.members[2]);
    for edit in member {
        let mut view = database_leader();
        edit(&mut view);
        all.extend(noted(view));
    }
    for edit in mysqld {
        let mut view = database_leader();
        edit(view.mysql.as_mut().unwrap());
        all.extend(noted(view));
    }
    all
}

fn states_of_a_mysqld() -> Vec<String> {
    use MysqldKind::{
        CatchingUp, Closed, Following, Primary, Process, Restarting, Stopped, ToBeOpened,
        Unprotected, Waiting,
    };
    use MysqldState::{
        Draining, Failed, Held, Initialising, Starting, Stopping, Unknown, Unmanaged, Unreachable,
    };
    let kinds = [
        Primary,
        Unprotected,
        Following,
        CatchingUp,
        ToBeOpened,
        Waiting,
        Stopped,
        Restarting,
        Closed,
    ];
    let process = [
        Starting,
        Initialising,
        Failed,
        Held,
        Draining,
        Stopping,
        Unreachable,
        Unmanaged,
        Unknown,
    ];
    let kinds = kinds.into_iter().chain(process.map(Process));
    let mut all = texts(kinds.collect());
    let follower = |lag_ms, lacks| MysqlView {
        state: MysqldState::Running,
        following: true,
        lag_ms,
        promotion: Some(DatabaseState {
            lag: Some(lacks),
            ..DatabaseState::default()
        }),
        ..MysqlView::default()
    };
    all.extend([
        mysqld(&follower(Some(75_000), 0)),
        mysqld(&follower(None, 1_663)),
    ]);
    all
}

fn roles_of_a_mysqld() -> Vec<RoleState> {
    vec![
        RoleState::Primary,
        RoleState::Following,
        RoleState::CatchingUp { lacks: 3 },
        RoleState::Waiting {
            what: WaitingFor::Answer,
        },
        RoleState::Stopped {
            cause: "it has transactions of its own".into(),
        },
        RoleState::Restarting {
            why: "commits that wait cannot be closed".into(),
        },
        RoleState::NotApplied,
        RoleState::Unmanaged,
        RoleState::Unknown,
    ]
}

fn write_fences() -> Vec<WriteFenceState> {
    let why = || "no quorum of the ring answers".to_owned();
    let cause = || "connection refused".to_owned();
    vec![
        WriteFenceState::Open,
        WriteFenceState::Closed { why: why() },
        WriteFenceState::NotClosed {
            why: why(),
            cause: cause(),
            stuck_in: None,
        },
        WriteFenceState::Opening,
        WriteFenceState::NotOpened { cause: cause() },
        WriteFenceState::Unmanaged,
        WriteFenceState::Unknown,
    ]
}

fn not_ready() -> Vec<NotReady> {
    vec![
        NotReady::Fault("the disk is gone".into()),
        NotReady::Joining,
        NotReady::NotServing(None),
        NotReady::NotServing(Some("no quorum answers".into())),
        NotReady::NoLeader,
        NotReady::QuorumLost(None),
        NotReady::QuorumLost(Some("1 of 3 voters answer and 2 are needed".into())),
        NotReady::DoesNotLead(Some(TWO)),
        NotReady::DoesNotLead(None),
        NotReady::Leads,
        NotReady::Paused(TWO),
        NotReady::IsWitness,
        NotReady::IsDatabase,
        NotReady::NoMysqld,
        NotReady::Trouble("it does not answer".into()),
        NotReady::CatchesUp(RoleState::CatchingUp { lacks: 3 }),
        NotReady::Unprotected(Vec::new()),
        NotReady::Unprotected(vec![
            "its timeout is 10 s".into(),
            "sync_binlog is 0".into(),
        ]),
        NotReady::NotIngesting,
        NotReady::NotWritable,
        NotReady::Offline("no quorum of the ring answers".into()),
        NotReady::NotFollowing("waiting: mysqld has to answer".into()),
        NotReady::PlainNotWritable(None),
        NotReady::PlainNotWritable(Some("it does not answer".into())),
        NotReady::PlainNotReplicating(None),
        NotReady::PlainNotReplicating(Some("it does not answer".into())),
        NotReady::Lags {
            lag_ms: 2_001,
            most_ms: 2_000,
        },
        NotReady::LagUnknown,
    ]
}

fn events() -> Vec<String> {
    let member = || "`db-1`".to_owned();
    let leads = |after| Change::Leads {
        member: member(),
        term: 4,
        after,
    };
    let mysqld = |was, now| Change::Mysqld {
        member: member(),
        was,
        now,
    };
    let trimmed = |transactions| Change::Trimmed {
        member: member(),
        transactions,
    };
    let changes = [
        Change::Started {
            member: member(),
            version: "0.1.0".into(),
        },
        Change::Silent(member()),
        Change::Answers(member()),
        leads(LedAfter::Itself),
        leads(LedAfter::Leader("`db-2`".into())),
        leads(LedAfter::NoLeader(Some(310))),
        leads(LedAfter::NoLeader(None)),
        leads(LedAfter::NoQuorum(75.0)),
        Change::NoQuorum("1 of 3 voters answer".into()),
        Change::NoLeader(Some(member())),
        Change::NoLeader(None),
        mysqld(MysqldKind::Following, MysqldKind::Primary),
        mysqld(MysqldKind::Primary, MysqldKind::Following),
        mysqld(MysqldKind::Primary, MysqldKind::Unprotected),
        trimmed(1),
        trimmed(2),
        Change::Added(member()),
        Change::Removed(member()),
        Change::VoterSets(vec!["`db-1`, `db-2`".into(), "`db-3`".into()]),
        Change::Policy {
            was: "majority".into(),
            now: "single-region-dynamic".into(),
        },
        Change::Paused {
            pause: pause(None, ""),
            primary: "db-1".into(),
        },
        Change::Resumed,
        Change::Fault("the disk is gone".into()),
    ];
    let line = |change: Change| format!("{:?}: {change}", change.level());
    changes.map(line).into()
}

fn histories() -> Vec<String> {
    let db = |id| Named {
        id: MemberId(id),
        name: format!("db-{id}"),
    };
    let led = |kind, leaderless_ms, writable| HistoryEvent::Led {
        leader: db(1),
        kind,
        log_end: None,
        leaderless_ms,
        writable,
    };
    let gave = |why: &str| HistoryEvent::GaveAway {
        from: db(2),
        to: db(3),
        why: why.into(),
    };
    let events = [
        HistoryEvent::Bootstrapped { members: 3 },
        led(MemberKind::Database, Some(1_500), true),
        led(MemberKind::Witness, Some(75_000), false),
        led(MemberKind::Database, None, false),
        gave(""),
        gave("it stopped"),
        HistoryEvent::Added { member: db(1) },
        HistoryEvent::Removed { member: db(1) },
        HistoryEvent::Updated { member: db(1) },
        HistoryEvent::RulesSet {
            policy: "majority".into(),
        },
        HistoryEvent::Paused {
            primary: db(1),
            until: Some(UnixSeconds(3_600)),
            reason: "disks".into(),
        },
        HistoryEvent::Resumed,
        HistoryEvent::Scheduled {
            to: db(2),
            at: UnixSeconds(3_600),
        },
        HistoryEvent::Unscheduled { why: String::new() },
        HistoryEvent::Unscheduled {
            why: "the target lags".into(),
        },
        HistoryEvent::Repaired {
            survivor: db(1),
            log_end: Some(OpId::new(3, 42)),
        },
        HistoryEvent::Trimmed {
            member: db(1),
            transactions: 2,
        },
        HistoryEvent::Provisioned {
            member: db(1),
            donor: db(2),
        },
        HistoryEvent::FormatRaised {
            to: FormatVersion(2),
        },
        HistoryEvent::WritesStopped {
            member: db(1),
            why: "it hung".into(),
        },
        HistoryEvent::WritesResumed { member: db(2) },
        HistoryEvent::QuorumLost {
            member: db(1),
            why: "1 of 3 voters answer".into(),
        },
        HistoryEvent::QuorumBack { member: db(1) },
        HistoryEvent::MemberLost { member: db(1) },
        HistoryEvent::MemberBack { member: db(1) },
        HistoryEvent::Exposed {
            member: db(1),
            transactions: 2,
        },
        HistoryEvent::ExposureAcknowledged { member: db(1) },
        HistoryEvent::Unknown,
    ];
    let sentence = |event| {
        let entry = HistoryEntry {
            at_ms: 0,
            term: Term(4),
            by: String::new(),
            event,
        };
        history::sentence(std::slice::from_ref(&entry), &entry)
    };
    events.map(sentence).into()
}

fn commands() -> Vec<String> {
    let commands = [
        json!({"command": "promote", "to": 2}),
        json!({"command": "mock_election", "to": 2}),
        json!({"command": "update_member", "member": 2, "wish": {}, "dry_run": false}),
        json!({"command": "set_rules", "wish": {}, "dry_run": false}),
        json!({"command": "remove_member", "member": 2}),
        json!({"command": "schedule_switchover", "to": 2, "at": 0}),
        json!({"command": "cancel_switchover"}),
        json!({"command": "pause", "wish": {"by": "anna"}}),
        json!({"command": "resume"}),
        json!({"command": "history"}),
        json!({"command": "acknowledge_exposure"}),
        json!({"command": "evidence"}),
        json!({"command": "flush_log"}),
        json!({"command": "purge_log", "wish": {"keep_bytes": 7}, "dry_run": true}),
        json!({"command": "found", "origin": ""}),
        json!({"command": "mysqld", "order": "look"}),
        json!({"command": "provision", "donor": 2, "dry_run": false}),
        json!({"command": "dry_run", "of": {"command": "remove_member", "member": 2}}),
        json!({"command": "reload"}),
        json!({"command": "restart_mysqld"}),
        json!({"command": "replace_statement", "gtid": "u:7", "statement": "DO 0"}),
        json!({"command": "offer_clone", "recipient": 2}),
        json!({"command": "withdraw_clone", "account": "witness_clone_2_x"}),
    ];
    let read = |json| serde_json::from_value::<OperatorCommand>(json).unwrap();
    commands.map(|json| read(json).to_string()).into()
}

fn orders() -> Vec<MysqldOrder> {
    vec![
        MysqldOrder::Look,
        MysqldOrder::StayUnmanaged,
        MysqldOrder::Prepare,
        MysqldOrder::StopWaiting,
        MysqldOrder::StopAcknowledging,
        MysqldOrder::LeaveSource,
        MysqldOrder::Manage,
        MysqldOrder::TakeOver,
        MysqldOrder::ReleaseFollower,
        MysqldOrder::ReleasePrimary,
        MysqldOrder::Replicate(ReplicateFrom {
            host: String::new(),
            port: 3306,
            tls: true,
            user: None,
            password: None,
        }),
    ]
}

fn promotions() -> Vec<Refusal> {
    let election = MockElection {
        candidate: TWO,
        cursor: OpId::new(3, 9),
        sets: Vec::new(),
        votes: vec![MockVote {
            voter: THREE,
            log_end: None,
            refusal: Some("it lacks 4 entries; wait for it".into()),
        }],
    };
    let silent = MoveObstacle::Silent {
        region: Some(north()),
        voters: 3,
        answering: 1,
        required: 2,
        silent: THREE,
    };
    vec![
        PromotionRefusal::Target(TransferRefusal::NotLeader { leader: Some(TWO) }).into(),
        PromotionRefusal::Target(TransferRefusal::NotLeader { leader: None }).into(),
        PromotionRefusal::Target(TransferRefusal::LeadsAlready(TWO)).into(),
        PromotionRefusal::Target(TransferRefusal::NoSuchMember(TWO)).into(),
        PromotionRefusal::Target(TransferRefusal::NotAVoter(TWO)).into(),
        PromotionRefusal::Target(TransferRefusal::Silent {
            member: TWO,
            last: Some(Duration::from_secs(7)),
        })
        .into(),
        PromotionRefusal::Target(TransferRefusal::Lagging {
            member: TWO,
            lag: 5000,
        })
        .into(),
        PromotionRefusal::Target(TransferRefusal::Slow {
            member: TWO,
            lag: 3,
            waited: Duration::from_millis(750),
        })
        .into(),
        PromotionRefusal::Target(TransferRefusal::UnderWay(TWO)).into(),
        PromotionRefusal::Witness(TWO).into(),
        PromotionRefusal::NotServing(NotServing::QuorumSilent).into(),
        PromotionRefusal::RegionCannotCommit {
            to: TWO,
            why: silent,
        }
        .into(),
        PromotionRefusal::MockElectionLost(Box::new(election)).into(),
        PromotionRefusal::NoMockElection("no answer".into()).into(),
        PromotionRefusal::NoTarget("no member answers".into()).into(),
        PromotionRefusal::Paused(TWO).into(),
        PromotionRefusal::Busy.into(),
    ]
}

fn failed_promotions() -> Vec<Refusal> {
    let gap = MoveObstacle::Policy(PolicyGap::NoVoters(north()));
    vec![
        PromotionError::Refused(PromotionRefusal::Busy).into(),
        PromotionError::Move(MoveError::Refused(gap.to_string()), north()).into(),
        PromotionError::TargetLags(TransferRefusal::NotAVoter(TWO), north()).into(),
        PromotionError::AnotherLeads {
            target: TWO,
            leader: THREE,
            term: Term(4),
        }
        .into(),
        PromotionError::Unknown("no leader yet".into()).into(),
    ]
}

fn changes() -> Vec<Refusal> {
    let waited = Duration::from_secs(2);
    vec![
        ReconfigurationError::NotLeader { leader: Some(TWO) }.into(),
        ReconfigurationError::NotServing(NotServing::QuorumSilent).into(),
        ReconfigurationError::NumberTaken(TWO).into(),
        ReconfigurationError::NumberUsed(TWO).into(),
        ReconfigurationError::Same {
            with: TWO,
            what: "address".into(),
        }
        .into(),
        ReconfigurationError::NoSuchMember(TWO).into(),
        ReconfigurationError::Leads(TWO).into(),
        ReconfigurationError::LastVoter(TWO).into(),
        ReconfigurationError::LastDatabase(TWO).into(),
        ReconfigurationError::LeavesNoMajority {
            member: TWO,
            why: MoveObstacle::Silent {
                region: Some(north()),
                voters: 2,
                answering: 1,
                required: 2,
                silent: MemberId(3),
            },
        }
        .into(),
        ReconfigurationError::Busy.into(),
        ReconfigurationError::Move(MoveError::Transferring).into(),
        ReconfigurationError::Move(MoveError::Overtaken).into(),
        ReconfigurationError::Move(MoveError::NotBegun {
            waited,
            what: "no quorum answered".into(),
        })
        .into(),
        ReconfigurationError::Move(MoveError::Uncommitted(waited)).into(),
        ReconfigurationError::Move(MoveError::Stopped(Fault::Stopped)).into(),
    ]
}

fn repairs() -> Vec<Refusal> {
    let end = Some(OpId::new(3, 42));
    vec![
        RepairRefusal::NoEvidence.into(),
        RepairRefusal::Led {
            leader: TWO,
            witness: THREE,
        }
        .into(),
        RepairRefusal::NotLost.into(),
        RepairRefusal::Unproven {
            survivor: TWO,
            missing: [THREE].into(),
            in_doubt: [].into(),
            gone_on: None,
            after: end,
        }
        .into(),
        RepairRefusal::OtherLoss {
            threatens: end,
            accepted: None,
        }
        .into(),
        RepairRefusal::OtherSurvivor(TWO).into(),
        RepairRefusal::Changed(TWO).into(),
        RepairRefusal::Late(Duration::from_millis(1_465)).into(),
    ]
}

fn pauses() -> Vec<Refusal> {
    vec![
        ReconfigurationError::NotLeader { leader: Some(TWO) }.into(),
        ReconfigurationError::NoPrimary(TWO).into(),
        ReconfigurationError::NotPaused.into(),
        ReconfigurationError::NotServing(NotServing::QuorumSilent).into(),
        ReconfigurationError::PausedPrimary(TWO).into(),
    ]
}
