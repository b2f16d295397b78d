//! Every refusal that a member can answer, with its exit code and the text for an operator: the message, and after the bar
//! the advice where the message does not give it.

use std::time::Duration;

use consensus::quorum::{MoveObstacle, PolicyGap};
use consensus::{Fault, MockElection, MockVote, MoveError, Term, TransferRefusal};
use member::protocol::Refusal;
use raft_types::{MemberId, OpId, Region};
use ring_admin::{
    PauseError, PromotionError, PromotionRefusal, ReconfigurationError, RepairRefusal,
};

use super::directory::Directory;
use crate::terminal::{Exit, Failure};

const TWO: MemberId = MemberId(2);
const THREE: MemberId = MemberId(3);

fn north() -> Region {
    Region("north".into())
}

/// As the command line prints it.
fn told(refusal: impl Into<Refusal>) -> (Exit, String) {
    let Failure { exit, what, advice } = Directory::default().failure(&refusal.into());
    (exit, format!("{what} | {advice}"))
}

fn check<R: Into<Refusal>>(table: impl IntoIterator<Item = (R, Exit, &'static str)>) {
    for (refusal, exit, expected) in table {
        assert_eq!(told(refusal), (exit, expected.to_owned()));
    }
}

#[test]
fn refused_promotions_say_what_to_do() {
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
    check([
        (
            PromotionRefusal::Target(TransferRefusal::NotLeader { leader: Some(TWO) }),
            Exit::NoQuorum,
            "this member does not lead; member 2 does | ask that one",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::NotLeader { leader: None }),
            Exit::NoQuorum,
            "this member does not lead, and knows no leader | check with `witness status` what the ring waits for, \
             and try again when a member leads",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::LeadsAlready(TWO)),
            Exit::Refused,
            "member 2 leads already | there is nothing to do",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::NoSuchMember(TWO)),
            Exit::Refused,
            "the ring has no member 2; see the list of its members | ",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::NotAVoter(TWO)),
            Exit::Refused,
            "member 2 is not a voter, so it cannot lead; choose a voter | ",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::Silent {
                member: TWO,
                last: Some(Duration::from_secs(7)),
            }),
            Exit::Refused,
            "member 2 has not answered for 7s; choose another or bring it back | ",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::Lagging {
                member: TWO,
                lag: 5000,
            }),
            Exit::Refused,
            "member 2 is 5000 entries behind; at most 1024 are allowed: wait for it | ",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::Slow {
                member: TWO,
                lag: 3,
                waited: Duration::from_millis(750),
            }),
            Exit::Refused,
            "member 2 still lacks 3 entries of the log after 750ms; look at its disk | ",
        ),
        (
            PromotionRefusal::Target(TransferRefusal::UnderWay(TWO)),
            Exit::Refused,
            "a transfer to member 2 is under way already; wait for its end | ",
        ),
        (
            PromotionRefusal::Witness(TWO),
            Exit::Refused,
            "member 2 is a witness, which cannot be the primary; choose a database member | ",
        ),
        (
            PromotionRefusal::NotServing("no quorum answers".into()),
            Exit::NoQuorum,
            "the leader does not serve: no quorum answers | bring members back until a quorum answers; `witness status` \
             says which",
        ),
        (
            PromotionRefusal::RegionCannotCommit {
                to: TWO,
                why: silent,
            },
            Exit::Refused,
            "with member 2 as the leader, commits would not be possible: only 1 of the 3 voters of region north answer \
             and 2 are needed; bring member 3 back | ",
        ),
        (
            PromotionRefusal::MockElectionLost(Box::new(election)),
            Exit::Refused,
            "member 2 would not be elected; member 3: it lacks 4 entries; wait for it | nothing was changed; `witness \
             mock-election` shows every voter's answer",
        ),
        (
            PromotionRefusal::NoMockElection("no answer".into()),
            Exit::Refused,
            "the mock election could not be held: no answer; bring the target back, or try again | ",
        ),
        (
            PromotionRefusal::NoTarget("nobody answers".into()),
            Exit::Refused,
            "no member can take over the leadership: nobody answers | check with `witness status --explain`, and try again",
        ),
        (
            PromotionRefusal::Paused(TWO),
            Exit::Refused,
            "failover is paused, and member 2 stays the primary; `witness resume` ends that | ",
        ),
        (
            PromotionRefusal::Busy,
            Exit::Refused,
            "another change of the quorum, the members or the leader is under way; wait for its end | ",
        ),
    ]);
}

#[test]
fn promotions_that_did_not_come_to_their_end_say_how_it_stands() {
    let gap = MoveObstacle::Policy(PolicyGap::NoVoters(north()));
    check([
        (
            PromotionError::Refused(PromotionRefusal::Busy),
            Exit::Refused,
            "another change of the quorum, the members or the leader is under way; wait for its end | ",
        ),
        (
            PromotionError::Move {
                error: MoveError::Refused {
                    reason: gap.to_string(),
                },
                home: north(),
            },
            Exit::Error,
            "the quorum could not be moved: the engine refuses the step: region north has no voting member; add one, or \
             choose another policy; the leader stays and takes it back to region north | check with `witness status \
             --explain`, and try again",
        ),
        (
            PromotionError::TargetLags {
                refusal: TransferRefusal::NotAVoter(TWO),
                home: north(),
            },
            Exit::Error,
            "after the quorum had moved: member 2 is not a voter, so it cannot lead; choose a voter; the leader stays and \
             takes the quorum back to region north | check with `witness status --explain`, and try again",
        ),
        (
            PromotionError::AnotherLeads {
                target: TWO,
                leader: THREE,
                term: Term(4),
            },
            Exit::Error,
            "member 3 was elected instead of member 2, in term 4; look at the target, then try again | ",
        ),
        (
            PromotionError::Unknown("nobody leads yet".into()),
            Exit::Unknown,
            "the outcome is unknown: nobody leads yet; check with `witness status` | ",
        ),
    ]);
}

#[test]
fn refused_changes_of_the_members_say_what_to_do() {
    let waited = Duration::from_secs(2);
    check([
        (
            ReconfigurationError::NotLeader { leader: Some(TWO) },
            Exit::NoQuorum,
            "this member does not lead; member 2 does | ask that one",
        ),
        (
            ReconfigurationError::NotServing("no quorum answers".into()),
            Exit::NoQuorum,
            "the leader does not serve: no quorum answers | bring members back until a quorum answers; `witness status` \
             says which",
        ),
        (
            ReconfigurationError::NumberTaken(TWO),
            Exit::Refused,
            "the ring has a member 2 already; give the new one a number that was never used | ",
        ),
        (
            ReconfigurationError::NumberUsed(TWO),
            Exit::Refused,
            "a member 2 was in the ring before; give the new one a number that was never used | ",
        ),
        (
            ReconfigurationError::Same {
                with: TWO,
                what: "address".into(),
            },
            Exit::Refused,
            "member 2 has the same address; give the new member its own | ",
        ),
        (
            ReconfigurationError::NoSuchMember(TWO),
            Exit::Refused,
            "the ring has no member 2; see `witness members list` | ",
        ),
        (
            ReconfigurationError::Leads(TWO),
            Exit::Refused,
            "member 2 leads; promote another member first | ",
        ),
        (
            ReconfigurationError::LastVoter(TWO),
            Exit::Refused,
            "member 2 is the only voter of a quorum that is in force; add or promote another member first | ",
        ),
        (
            ReconfigurationError::LastDatabase(TWO),
            Exit::Refused,
            "member 2 is the only database member that may vote: without it nobody can be the primary; add another one first | ",
        ),
        (
            ReconfigurationError::LeavesNoMajority {
                member: TWO,
                why: MoveObstacle::Silent {
                    region: Some(north()),
                    voters: 2,
                    answering: 1,
                    required: 2,
                    silent: MemberId(3),
                },
            },
            Exit::Refused,
            "without member 2, only 1 of the 2 voters of region north answer and 2 are needed; bring member 3 back, or \
             remove it first | ",
        ),
        (
            ReconfigurationError::Busy,
            Exit::Refused,
            "another change of the quorum, the members or the leader is under way; wait for its end | ",
        ),
        (
            ReconfigurationError::Move(MoveError::Transferring),
            Exit::Refused,
            "the leadership is being transferred; wait for its end | ",
        ),
        (
            ReconfigurationError::Move(MoveError::Overtaken),
            Exit::Refused,
            "the membership has been changed meanwhile; look at it again | ",
        ),
        (
            ReconfigurationError::Move(MoveError::NotBegun {
                waited,
                what: "no quorum answered".into(),
            }),
            Exit::NoQuorum,
            "nothing was changed: within 2s no quorum answered; bring the voters back that do not answer | ",
        ),
        (
            ReconfigurationError::Move(MoveError::Uncommitted { waited }),
            Exit::Unknown,
            "the change is in the log, but not committed within 2s; it takes effect when the voters that do not answer \
             are back | ",
        ),
        (
            ReconfigurationError::Move(MoveError::Stopped(Fault::Stopped)),
            Exit::Error,
            "the member was shut down | look at that member's log, and start it again",
        ),
    ]);
}

#[test]
fn refused_repairs_say_what_to_do() {
    let end = Some(OpId::new(3, 42));
    check([
        (
            RepairRefusal::NoEvidence,
            Exit::NoQuorum,
            "no member with a log answers; start at least one, or check the addresses | ",
        ),
        (
            RepairRefusal::Led {
                leader: TWO,
                witness: THREE,
            },
            Exit::Refused,
            "member 2 leads, as member 3 reports: it has a quorum, or does not answer member 3; there is nothing to repair | if \
             commits wait although it leads, restore the network between the two members, or stop the leader",
        ),
        (
            RepairRefusal::NotLost,
            Exit::Refused,
            "the quorum is not lost: a majority of every voter set answers; wait for the election, and look at \
             `witness status --explain` | ",
        ),
        (
            RepairRefusal::Unproven {
                survivor: TWO,
                missing: [THREE].into(),
                in_doubt: [].into(),
                gone_on: None,
                after: end,
            },
            Exit::Refused,
            "it cannot be proven that member 2 has everything that was acknowledged: member 3 may have more, and does not \
             answer. Bring back one that is missing, even if only for its log; or accept that entries after 3.42 may be lost, \
             with `--accept-loss 3.42` | ",
        ),
        (
            RepairRefusal::OtherLoss {
                threatens: end,
                accepted: None,
            },
            Exit::Refused,
            "entries after 3.42 may be lost, not those after none; look at the plan again | ",
        ),
        (
            RepairRefusal::OtherSurvivor(TWO),
            Exit::Refused,
            "the plan is for member 2 | nothing was changed; read the plan again with `witness quorum fix`",
        ),
        (
            RepairRefusal::Changed(TWO),
            Exit::Refused,
            "the log or the vote of member 2 has changed since the plan was made; make a new one | nothing was changed; \
             read the plan again with `witness quorum fix`",
        ),
        (
            RepairRefusal::Late(Duration::from_millis(1_465)),
            Exit::Refused,
            "this member was stopped for 1465 ms before its repair: another one may have been repaired since; make a new plan | \
             nothing was changed; read the plan again with `witness quorum fix`",
        ),
    ]);
}

#[test]
fn pauses_that_are_refused() {
    check([
        (
            PauseError::NotLeader { leader: Some(TWO) },
            Exit::NoQuorum,
            "this member does not lead; member 2 does | ask that one",
        ),
        (
            PauseError::NoPrimary(TWO),
            Exit::Refused,
            "member 2 leads, which is a witness, so that there is no primary now; pause when a database member leads | ",
        ),
        (
            PauseError::NotPaused,
            Exit::Refused,
            "failover is not paused | there is nothing to do",
        ),
        (
            PauseError::NotServing("no quorum".into()),
            Exit::NoQuorum,
            "the leader does not serve: no quorum | bring members back until a quorum answers; `witness status` says which",
        ),
    ]);
    check([(
        ReconfigurationError::PausedPrimary(TWO),
        Exit::Refused,
        "failover is paused for member 2; run `witness resume`, or promote another member first | ",
    )]);
}
