//! Members of two versions in one ring: the ring's format rises only after the last member is upgraded.

use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use consensus::{
    Answer, Greeting, HistoryEvent, Program, PromisedLease, Question, Remembered, Report,
    StartError, Term,
};
use raft_types::MemberKind::{Database, Witness};
use raft_types::{FormatVersion, MemberId, OpId, Standing};

use crate::support::memory_log::MemoryDisk;
use crate::support::ring::{Ring, TIMERS, record, within};

const FIRST: FormatVersion = FormatVersion::FIRST;
const SECOND: FormatVersion = FormatVersion(2);

/// The handshake answer of programs without the format field.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
enum AnswerBefore {
    Greeting,
}

#[test]
fn a_greeting_is_answered_by_and_to_programs_that_know_no_formats() {
    let program = Some(Program::this());
    let now = serde_json::to_string(&Answer::Greeting {
        program,
        greeting: Greeting::default(),
    })
    .unwrap();
    assert!(now.contains("\"formats\":\"1\""), "{now}");
    let read: AnswerBefore = serde_json::from_str(&now).unwrap();
    assert_eq!(read, AnswerBefore::Greeting);
    let before = serde_json::from_str::<Answer>(r#"{"answer":"greeting"}"#).unwrap();
    let nothing = Answer::Greeting {
        program: None,
        greeting: Greeting::default(),
    };
    assert_eq!(before, nothing);
}

/// The handshake of programs without the format field.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
enum QuestionBefore {
    Greeting,
}

#[test]
fn greetings_with_new_fields_are_valid_for_old_programs() {
    let standing = Standing {
        term: 3,
        end: Some(OpId::new(3, 9)),
    };
    let greeting = Greeting {
        report: Some(Report {
            standing,
            doubted: Some(2),
            restored: None,
        }),
        remembered: Some(Remembered { standing, term: 4 }),
        promised: Some(PromisedLease {
            term: Term(3),
            lease: TIMERS.lease,
        }),
    };
    let now = serde_json::to_string(&Question::Greeting(greeting)).unwrap();
    let read: QuestionBefore = serde_json::from_str(&now).unwrap();
    assert_eq!(read, QuestionBefore::Greeting);
    let again: Question = serde_json::from_str(&now).unwrap();
    assert_eq!(again, Question::Greeting(greeting));
    let before = serde_json::from_str::<Question>(r#"{"question":"greeting"}"#).unwrap();
    assert_eq!(before, Question::Greeting(Greeting::default()));
}

/// Restarts a member with a program that supports these formats.
async fn install(ring: &mut Ring, id: MemberId, formats: &str) {
    ring.crash(id).await;
    ring.speaks.insert(id, formats.parse().unwrap());
    ring.start(id).await;
}

/// Waits long enough for a leader to query all members twice, and to raise the format.
async fn a_while() {
    tokio::time::sleep(TIMERS.lease * 8).await;
}

async fn risen(ring: &Ring, to: FormatVersion) {
    within("the ring's format", async {
        while ring.members.values().any(|one| one.ring_format() != to) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn assert_all_at(ring: &Ring, format: FormatVersion) {
    for (id, member) in &ring.members {
        assert_eq!(member.ring_format(), format, "member {id}");
    }
}

fn rises(ring: &Ring, at: MemberId) -> Vec<FormatVersion> {
    let told = ring.member(at).history().into_iter();
    let raised = told.filter_map(|entry| match entry.event {
        HistoryEvent::FormatRaised { to } => Some(to),
        _ => None,
    });
    raised.collect()
}

/// Returns a ring of three members that are all upgraded.
async fn upgraded() -> Ring {
    let mut ring = Ring::started(&[]).await;
    for (id, kind) in [(1, Database), (2, Database), (3, Witness)] {
        let id = MemberId(id);
        ring.records.insert(id, record(id, "home", kind));
        ring.disks.insert(id, MemoryDisk::default());
        ring.speaks.insert(id, "1-2".parse().unwrap());
    }
    ring.start_all().await;
    ring.bootstrap().await;
    risen(&ring, SECOND).await;
    ring
}

#[tokio::test(start_paused = true)]
async fn a_ring_is_upgraded_member_by_member_and_its_format_rises_with_the_last() {
    let mut ring = Ring::of(&[Database, Database, Witness]).await;
    for id in ring.ids() {
        ring.commit(&format!("before member {id}")).await;
        a_while().await;
        assert_all_at(&ring, FIRST);
        install(&mut ring, id, "1-2").await;
    }
    risen(&ring, SECOND).await;
    let last = ring.commit("all upgraded").await;
    ring.committed_everywhere(last).await;
    a_while().await;
    for id in ring.ids() {
        assert_eq!(rises(&ring, id), [SECOND], "once, for all");
        assert_eq!(ring.disks[&id].transactions().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_can_be_downgraded_before_the_last_upgrade() {
    let mut ring = Ring::of(&[Database, Database, Witness]).await;
    ring.commit("before").await;
    let [one, two, three] = [1, 2, 3].map(MemberId);
    install(&mut ring, one, "1-2").await;
    install(&mut ring, two, "1-2").await;
    a_while().await;
    install(&mut ring, two, "1").await;
    install(&mut ring, three, "1-2").await;
    let last = ring.commit("one of them went back").await;
    ring.committed_everywhere(last).await;
    a_while().await;
    assert_all_at(&ring, FIRST);
    // While a member does not answer, the format does not rise: the member may run any version.
    ring.crash(two).await;
    a_while().await;
    assert_all_at(&ring, FIRST);
    ring.speaks.insert(two, "1-2".parse().unwrap());
    ring.start(two).await;
    risen(&ring, SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn the_leader_reports_the_members_programs_below_its_format() {
    let mut ring = Ring::of(&[Database, Database, Database]).await;
    for id in [1, 2].map(MemberId) {
        install(&mut ring, id, "1-2").await;
    }
    // The member with the old version must not lead: it would not query the programs of the others.
    let (leader, _) = ring.serving().await;
    if leader == MemberId(3) {
        ring.member(leader)
            .transfer_leader(MemberId(1))
            .await
            .unwrap();
    }
    a_while().await;
    let (leader, _) = ring.serving().await;
    let formats = ring.member(leader).status().formats;
    let said = |id| formats.others[&MemberId(id)].formats.to_string();
    assert_eq!(formats.ring, FIRST);
    assert_eq!(said(3), "1");
    assert_eq!(said(if leader.0 == 1 { 2 } else { 1 }), "1-2");
}

#[tokio::test(start_paused = true)]
async fn after_the_rise_the_earlier_version_does_not_start_and_changes_nothing() {
    let mut ring = upgraded().await;
    ring.commit("risen").await;
    let (leader, _) = ring.serving().await;
    let follower = MemberId(if leader.0 == 1 { 2 } else { 1 });
    ring.crash(follower).await;
    let before = ring.disks[&follower].all();
    ring.speaks.insert(follower, "1".parse().unwrap());
    let refused = ring.try_start(follower).await.unwrap_err();
    assert!(matches!(refused, StartError::Format(_)), "{refused}");
    let words = refused.to_string();
    assert!(words.contains("format 2, and this program speaks 1: install a later version of witness; nothing was changed"), "{words}");
    assert_eq!(ring.disks[&follower].all(), before);
    ring.speaks.insert(follower, "2-3".parse().unwrap());
    ring.start(follower).await;
    let last = ring.commit("with the later version").await;
    ring.committed_everywhere(last).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_of_the_earlier_version_refuses_entries_of_the_new_format() {
    let mut ring = upgraded().await;
    let last = ring.commit("before the newcomer").await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let leading = ring.member(leader).clone();
    let refused = leading.check_new_member_speaks("1".parse().unwrap());
    let words = refused.unwrap_err().to_string();
    assert!(
        words.contains(
            "the ring's format is 2, and the new member speaks 1: install a later version"
        ),
        "{words}"
    );

    // The new member was queried before the format rose, and is added after that.
    let newcomer = MemberId(4);
    let newcomers_record = record(newcomer, "home", Witness);
    let speaks = Some("1".parse().unwrap());
    let late = leading.add_member(newcomer, newcomers_record.clone(), speaks, "anna");
    assert_eq!(late.await.unwrap_err().to_string(), words);

    // If the member is added with unknown formats, it refuses entries that it does not support.
    ring.records.insert(newcomer, newcomers_record.clone());
    ring.disks.insert(newcomer, MemoryDisk::default());
    ring.start(newcomer).await;
    let added = leading.add_member(newcomer, newcomers_record, None, "anna");
    within("the joining", added).await.unwrap();
    let refused = within("the refusal", async {
        loop {
            if let Some(why) = ring.member(newcomer).status().formats.refused {
                return why;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(
        refused,
        "the ring has gone on to format 2, and this program speaks 1: install a later version of witness"
    );
    assert!(ring.disks[&newcomer].transactions().is_empty());
    assert_eq!(ring.member(newcomer).ring_format(), FIRST);
    ring.commit("without it").await;
    install(&mut ring, newcomer, "1-2").await;
    let last = ring.commit("with it").await;
    ring.committed_everywhere(last).await;
    assert_eq!(ring.member(newcomer).status().formats.refused, None);
}

#[tokio::test(start_paused = true)]
async fn a_later_version_joins_only_rings_of_its_formats() {
    let ring = Ring::of(&[Database, Database, Witness]).await;
    let (leader, _) = ring.serving().await;
    let refused = ring
        .member(leader)
        .check_new_member_speaks("2-3".parse().unwrap());
    let words = refused.unwrap_err().to_string();
    assert!(
        words.contains(
            "the ring's format is 1, and the new member speaks 2-3: install an earlier version"
        ),
        "{words}"
    );

    let mut later = Ring::laid_out("a: 1d 2w 3w", QuorumPolicy::SingleRegionDynamic);
    for id in later.ids() {
        later.speaks.insert(id, "2-3".parse().unwrap());
    }
    later.start_all().await;
    later.bootstrap().await;
    risen(&later, FormatVersion(3)).await;
    let (leader, _) = later.serving().await;
    assert_eq!(rises(&later, leader), [FormatVersion(3)], "it began with 2");
}
