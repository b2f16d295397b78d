//! The plan for a member's mysqld: one pure decision, [`decide`], over all facts of one moment. Observers supply the [`Facts`]
//! ([`crate::watch`] for mysqld, [`crate::Ring`] for the ring). Executors carry out the [`Plan`] concurrently, without waiting for each
//! other (decision 69).
//!
//! | the ring | mysqld | clients may write ([`write_fence`]) | clients may read ([`read_fence`]) | the log ([`apply`], [`kill`]) |
//! |---|---|---|---|---|
//! | this member serves | compared in this term, nothing lacks | yes, once ingest is attached | yes | nothing |
//! | this member serves | not compared in this term | as it is; never opened | yes | compare |
//! | this member serves | lacks part of the log | no | yes | applied to the end, then compared |
//! | this member serves | followed, and waiting commits prevent the close | no | yes | nothing: mysqld is killed and recovers |
//! | this member serves | commits may complete without the ring | no | yes | nothing |
//! | this member serves, a switchover begins | any | no | yes | nothing |
//! | no quorum answers, or no member leads | was the primary | as it is for `mysql.fence_after`, then no | as it is for `mysql.fence_after`, then no | nothing |
//! | another member leads | was the primary | no, immediately | no, if closing failed; otherwise yes for `mysql.fence_after` | applied once mysqld is closed |
//! | another member leads | has waiting commits that cannot end | no | no | nothing: mysqld is killed and recovers |
//! | another member leads, or this one | follows, and waits for locks of a prepared transaction | administrators and the applier only | yes | nothing: mysqld is killed, once, and recovers |
//! | another member leads | follows | administrators and the applier only | yes | applied |
//! | any | data being replaced; or another mysqld with its `server_uuid` is the primary or may be | no | as it is | nothing |
//! | any | may be another member's mysqld | no action | no action | no action |

pub mod apply;
pub mod demotion;
pub mod facts;
pub mod kill;
pub mod read_fence;
pub(crate) mod role_words;
pub mod same_uuid;
pub mod takeover;
pub mod write_fence;

use std::time::Duration;

use mysqld_server::supervisor::UNASKED_STOP;
use tokio::time::Instant;

use crate::plan::facts::{Applier, ApplyAction, Facts, Kill};
use crate::plan::read_fence::{ReadFenceAction, ReadFenceMemory};
use crate::plan::write_fence::{StayReason, WriteAction};

/// Actions to take now. Each part has its own executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The write fence's action.
    pub write: WriteAction,
    /// The read fence's action.
    pub read: ReadFenceAction,
    /// The action on the ring's log.
    pub apply: ApplyAction,
    /// Why mysqld is killed and restarted; `None` if it is not.
    pub kill: Option<Kill>,
    /// When to check the facts again even if nothing has changed.
    pub next: Option<Instant>,
}

/// The pause between two observations of a server that shuts down without an order while commits wait. mysqld reports these commits as
/// successful some seconds later.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// Returns the plan for the facts of one moment. `memory` is the read fence's state between two plans.
pub fn decide(facts: &Facts, memory: &mut ReadFenceMemory, now: Instant) -> Plan {
    let (apply, why) = match apply::decide(facts, now) {
        ApplyAction::Kill(why) => (ApplyAction::Stay, Some(why)),
        action => (action, kill::unasked_stop(facts)),
    };
    Plan {
        write: write(facts, now),
        read: read(facts, memory, now),
        apply,
        kill: why.filter(|_| !facts.stopping && !facts.just_killed),
        next: next_look(facts, memory, now),
    }
}

fn write(facts: &Facts, now: Instant) -> WriteAction {
    let Some(memory) = facts.write_memory.filter(|_| !facts.stopping) else {
        return WriteAction::Wait;
    };
    match write_fence::decide(facts, &memory) {
        stay @ WriteAction::Stay(_) => stay,
        // A failure to adopt the server blocks no other action.
        WriteAction::TakeOverOpen(_) if memory.take_over_not_before.is_some_and(|at| now < at) => {
            WriteAction::Stay(StayReason::Open)
        }
        _ if memory.not_before.is_some_and(|at| now < at) => WriteAction::Wait,
        // A follower that is starting sets variables that an open primary must not have.
        WriteAction::Prepare(_) | WriteAction::Open(_) | WriteAction::TakeOverOpen(_)
            if matches!(facts.applying, Some(ApplyAction::Follow)) =>
        {
            WriteAction::Wait
        }
        action => action,
    }
}

/// Records observations even while the fence cannot act.
fn read(facts: &Facts, memory: &mut ReadFenceMemory, now: Instant) -> ReadFenceAction {
    let action = memory.decide(facts, now);
    let waits = facts.read_not_before.is_some_and(|at| now < at);
    match facts.stopping || facts.read_fence_moves || waits {
        true => ReadFenceAction::Stay,
        false => action,
    }
}

/// When to check the facts again. Silence, grace and pauses end without an event.
fn next_look(facts: &Facts, memory: &ReadFenceMemory, now: Instant) -> Option<Instant> {
    let after = |left: Duration| now + left;
    let lockout = facts.locked_out.and_then(|so_far| {
        let patience = kill::borne_with(facts)?;
        patience.checked_sub(so_far).map(after)
    });
    let retry = match facts.applier {
        Applier::Failed(at) => Some(at),
        _ => None,
    };
    let write = facts.write_memory.unwrap_or_default();
    let stop_look = |so_far| now + UNASKED_STOP.saturating_sub(so_far).max(STOP_LOOK);
    let times = [
        facts.leading.patience_left(facts.fence_after).map(after),
        write.not_before,
        write.take_over_not_before,
        memory.grace_ends(facts.fence_after),
        facts.read_not_before,
        lockout,
        retry,
        facts.compare_not_before.map(|(_, at)| at),
        facts.ending.map(stop_look),
    ];
    times.into_iter().flatten().filter(|at| *at > now).min()
}

#[cfg(test)]
#[path = "tests/model.rs"]
mod model;

#[cfg(test)]
mod tests {
    use raft_types::{MemberId, Term};

    use super::*;
    use crate::plan::facts::{LockoutPatience, ServerView};
    use crate::plan::write_fence::CloseReason::{AnotherLeads, Incomplete, Switchover};
    use crate::plan::write_fence::CloseReason::{QuorumSilent, Unprotected};
    use crate::ring::Leading;
    use crate::status::{ReadFenceReason, Readiness, WriteFenceState};
    use crate::watch::{Protection, ReadOnly};

    const TERM: Term = Term(3);
    const FENCE_AFTER: Duration = Duration::from_secs(10);

    impl Plan {
        /// True if no action is due.
        fn is_idle(&self) -> bool {
            matches!(self.write, WriteAction::Stay(_) | WriteAction::Wait)
                && self.read == ReadFenceAction::Stay
                && self.apply == ApplyAction::Stay
                && self.kill.is_none()
        }
    }
    const OTHER: MemberId = MemberId(4);

    /// Checks the table at the head of this module, row by row, after the state has lasted longer than `mysql.fence_after`.
    #[test]
    fn the_table() {
        let serving = Leading::Serving(TERM);
        let silent = Leading::Silent(FENCE_AFTER);
        let elsewhere = Leading::Elsewhere(OTHER);
        let primary = |leading| Facts {
            leading,
            others: true,
            server: Some(ServerView {
                incarnation: 1,
                read_only: ReadOnly::Off,
                offline: false,
            }),
            protection: Protection::Protected,
            attached: leading == serving,
            can_restart: true,
            runs: true,
            readiness: Readiness::In(TERM),
            found_in: Some((1, TERM)),
            write_fence: WriteFenceState::Open,
            ..Facts::unknown(FENCE_AFTER, LockoutPatience::new(None))
        };
        let seen = |facts: Facts, read_only| Facts {
            server: facts.server.map(|server| ServerView {
                read_only,
                ..server
            }),
            ..facts
        };
        let closed = |facts| Facts {
            write_fence: WriteFenceState::Closed { why: String::new() },
            ..seen(facts, ReadOnly::Everybody)
        };
        let with = |readiness, facts: Facts| Facts { readiness, ..facts };
        let stuck = |facts| Facts {
            write_fence: WriteFenceState::NotClosed {
                why: String::new(),
                cause: String::new(),
                stuck_in: Some(1),
            },
            ..facts
        };
        let follower = |leading| Facts {
            applier: Applier::Applying(1),
            ..with(
                Readiness::Applying,
                seen(closed(primary(leading)), ReadOnly::Clients),
            )
        };
        let fenced = |why| ReadFenceAction::Raise(why);
        let table = [
            (
                closed(primary(serving)),
                (WriteAction::Prepare(TERM), ReadFenceAction::Stay),
                ApplyAction::Stay,
                None,
            ),
            (
                with(Readiness::Unknown, closed(primary(serving))),
                (
                    WriteAction::Stay(StayReason::Closed(Incomplete)),
                    ReadFenceAction::Stay,
                ),
                ApplyAction::Compare(TERM),
                None,
            ),
            (
                with(Readiness::Lacks, primary(serving)),
                (WriteAction::Close(Incomplete), ReadFenceAction::Stay),
                ApplyAction::Stay,
                None,
            ),
            (
                with(Readiness::Lacks, closed(primary(serving))),
                (
                    WriteAction::Stay(StayReason::Closed(Incomplete)),
                    ReadFenceAction::Stay,
                ),
                ApplyAction::Follow,
                None,
            ),
            (
                follower(serving),
                (
                    WriteAction::Stay(StayReason::Closed(Incomplete)),
                    ReadFenceAction::Stay,
                ),
                ApplyAction::Finish(TERM),
                None,
            ),
            (
                Facts {
                    protection: Protection::Unprotected {
                        findings: Vec::new(),
                    },
                    ..primary(serving)
                },
                (WriteAction::Close(Unprotected), ReadFenceAction::Stay),
                ApplyAction::Stay,
                None,
            ),
            (
                Facts {
                    transferring: true,
                    ..primary(serving)
                },
                (WriteAction::Close(Switchover), ReadFenceAction::Stay),
                ApplyAction::Stay,
                None,
            ),
            (
                primary(silent),
                (
                    WriteAction::Close(QuorumSilent),
                    fenced(ReadFenceReason::QuorumSilent),
                ),
                ApplyAction::Stay,
                None,
            ),
            (
                primary(elsewhere),
                (
                    WriteAction::Close(AnotherLeads(OTHER)),
                    fenced(ReadFenceReason::AnotherLeads(OTHER)),
                ),
                ApplyAction::Stay,
                None,
            ),
            (
                closed(primary(elsewhere)),
                (
                    WriteAction::Stay(StayReason::Closed(AnotherLeads(OTHER))),
                    fenced(ReadFenceReason::AnotherLeads(OTHER)),
                ),
                ApplyAction::Follow,
                None,
            ),
            (
                stuck(primary(elsewhere)),
                (
                    WriteAction::Close(AnotherLeads(OTHER)),
                    fenced(ReadFenceReason::AnotherLeads(OTHER)),
                ),
                ApplyAction::Stay,
                Some(Kill::Stuck),
            ),
            (
                follower(elsewhere),
                (
                    WriteAction::Stay(StayReason::Closed(AnotherLeads(OTHER))),
                    ReadFenceAction::Stay,
                ),
                ApplyAction::Stay,
                None,
            ),
            (
                Facts {
                    held: true,
                    ..follower(elsewhere)
                },
                (
                    WriteAction::Stay(StayReason::Closed(AnotherLeads(OTHER))),
                    ReadFenceAction::Stay,
                ),
                ApplyAction::EndApplier,
                None,
            ),
        ];
        let begin = Instant::now();
        for (facts, (write, read), apply, kill) in table {
            let mut memory = ReadFenceMemory::default();
            // The server was the primary before, unless it follows.
            decide(&primary(serving), &mut memory, begin);
            decide(&facts, &mut memory, begin);
            let plan = decide(&facts, &mut memory, begin + FENCE_AFTER);
            let decided = (plan.write, plan.read, plan.apply, plan.kill);
            assert_eq!(decided, (write, read, apply, kill), "{facts:?}");
            // An action in progress is not started a second time, and a stopping member starts nothing.
            let busy = Facts {
                write_memory: None,
                read_fence_moves: true,
                applying: Some(ApplyAction::EndApplier),
                ..facts.clone()
            };
            assert!(decide(&busy, &mut memory, begin + FENCE_AFTER).is_idle());
            let stopping = Facts {
                stopping: true,
                ..facts
            };
            let plan = decide(&stopping, &mut memory, begin + FENCE_AFTER);
            let ends = [ApplyAction::Stay, ApplyAction::EndApplier].contains(&plan.apply);
            assert!(ends && plan.write == WriteAction::Wait && plan.kill.is_none());
            assert_eq!(plan.read, ReadFenceAction::Stay);
        }
    }

    /// The server is another member's primary, which is configured as this member's as well.
    #[test]
    fn a_server_that_may_be_another_members_is_not_touched() {
        let begin = Instant::now();
        for leading in [
            Leading::Serving(TERM),
            Leading::Elsewhere(OTHER),
            Leading::Silent(FENCE_AFTER),
            Leading::No(FENCE_AFTER),
        ] {
            for readiness in [Readiness::Unknown, Readiness::Lacks, Readiness::Applying] {
                let facts = Facts {
                    leading,
                    others: true,
                    held: true,
                    server: Some(ServerView {
                        incarnation: 1,
                        read_only: ReadOnly::Off,
                        offline: false,
                    }),
                    protection: Protection::Protected,
                    locked_out: Some(FENCE_AFTER * 100),
                    can_restart: true,
                    runs: true,
                    readiness,
                    write_fence: WriteFenceState::Open,
                    ..Facts::unknown(FENCE_AFTER, LockoutPatience::new(None))
                };
                let plan = |facts: Facts| {
                    let mut memory = ReadFenceMemory::default();
                    decide(&facts, &mut memory, begin);
                    decide(&facts, &mut memory, begin + FENCE_AFTER)
                };
                let untouched = plan(facts.clone().untouched());
                assert!(untouched.is_idle(), "{facts:?}: {untouched:?}");
                // The applier first finishes its current work.
                let applies = Facts {
                    applier: Applier::Applying(1),
                    ..facts
                };
                assert_eq!(plan(applies.untouched()).apply, ApplyAction::EndApplier);
            }
        }
    }

    #[test]
    fn nothing_opens_what_begins_to_follow() {
        let facts = Facts {
            leading: Leading::Serving(TERM),
            server: Some(ServerView {
                incarnation: 1,
                read_only: ReadOnly::Everybody,
                offline: false,
            }),
            protection: Protection::Protected,
            attached: true,
            readiness: Readiness::In(TERM),
            applying: Some(ApplyAction::Follow),
            ..Facts::unknown(FENCE_AFTER, LockoutPatience::new(None))
        };
        let plan = decide(&facts, &mut ReadFenceMemory::default(), Instant::now());
        assert_eq!(plan.write, WriteAction::Wait);
    }

    #[test]
    fn only_a_stop_that_nobody_asked_for_with_commits_that_wait_is_cut_short() {
        let table = [
            (Some(2), true, true, true),
            (Some(1), true, true, false),
            (None, true, true, false),
            // The ring has all transactions, so the shutdown is in order.
            (Some(9), true, false, false),
            // The member itself stops the server, or the server has ended.
            (Some(9), false, true, false),
        ];
        for (ending, runs, waits, expected) in table {
            let facts = Facts {
                ending: ending.map(Duration::from_secs),
                runs,
                waits,
                can_restart: true,
                ..Facts::unknown(FENCE_AFTER, LockoutPatience::new(None))
            };
            let kill = |facts: &Facts| {
                let plan = decide(facts, &mut ReadFenceMemory::default(), Instant::now());
                plan.kill == Some(Kill::UnaskedStop)
            };
            assert_eq!(kill(&facts), expected, "{ending:?} {runs} {waits}");
            let just_killed = Facts {
                just_killed: true,
                ..facts
            };
            assert!(!kill(&just_killed));
        }
    }
}
