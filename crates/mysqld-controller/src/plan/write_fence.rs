//! Decides whether clients may write. Pure.

use std::fmt;
use std::time::Duration;

use raft_types::{MemberId, Term};
use tokio::time::Instant;

use crate::ingest::IngestStatus;
use crate::plan::facts::{Facts, WriteMemory};
use crate::ring::Leading;
use crate::status::Readiness;
use crate::watch::{Protection, ReadOnly};

/// The write fence's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAction {
    /// Run the queries that must precede opening. They may take long, so the decision is made again afterwards.
    Prepare(Term),
    /// Switch `super_read_only` off, so that clients can write.
    Open(Term),
    /// The server is already open, for example because a long statement delayed the close. Prepare its binlog so that it can be trimmed
    /// after a crash.
    TakeOverOpen(Term),
    /// Switch `super_read_only` on, so that no account can write.
    Close(CloseReason),
    /// Leave the server as it is.
    Stay(StayReason),
    /// Leave the server as it is for now: an action is in progress, or an attempt was made shortly before.
    Wait,
}

/// Why the server is or should be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// This member does not lead.
    NotLeader,
    /// This member leads, and no quorum has answered within the lease.
    QuorumSilent,
    /// Commits may complete without the ring.
    Unprotected,
    /// The primary belongs to another member.
    AnotherLeads(MemberId),
    /// The server does not have all of the ring's log yet.
    Incomplete,
    /// The leadership is being transferred to another member.
    Switchover,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader => f.write_str("this member does not lead"),
            Self::QuorumSilent => f.write_str("no quorum of the ring answers"),
            Self::Unprotected => f.write_str("commits may complete without the ring"),
            Self::Incomplete => {
                f.write_str("part of the ring's log is not known to be applied here yet")
            }
            Self::Switchover => f.write_str("a planned switchover is under way"),
            Self::AnotherLeads(member) => {
                write!(
                    f,
                    "member {member} leads, and the primary is beside that one"
                )
            }
        }
    }
}

/// Why the server stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayReason {
    /// The server is open, as it should be.
    Open,
    /// The server is closed, as it should be.
    Closed(CloseReason),
    /// The server is closed, and opens when ingest is attached.
    ClosedUntilAttached,
    /// Another account closed the server. It opens again when an account opens it, or in the next leadership.
    ClosedByOthers,
    /// The server cannot be observed.
    Unknown,
}

/// True if ingest receives the primary's transactions in this leadership, and the server was observed after ingest attached. An older
/// observation is invalid, because attaching changes settings. An attachment of an earlier leadership is also invalid: the server may have
/// followed since, and then commits do not wait.
pub fn is_attached_and_looked_at(
    ingest: &IngestStatus,
    leading: Leading,
    looked_at: Instant,
) -> bool {
    let term = match leading {
        Leading::Serving(term) => Some(term),
        _ => None,
    };
    ingest.is_attached() && ingest.term == term && looked_at >= ingest.since
}

/// Decides the next action.
///
/// If commits were found not to wait for the ring, a silent quorum closes the server immediately. A server that was never observed is not
/// closed for that reason.
pub(super) fn decide(facts: &Facts, memory: &WriteMemory) -> WriteAction {
    let Some(server) = facts.server else {
        return WriteAction::Stay(StayReason::Unknown);
    };
    // The applier needs a server that is closed to clients, and open to the applier.
    let closed = match facts.readiness {
        Readiness::Applying => server.read_only != ReadOnly::Off,
        _ => server.read_only == ReadOnly::Everybody,
    };
    let close = |reason| match closed {
        true => WriteAction::Stay(StayReason::Closed(reason)),
        false => WriteAction::Close(reason),
    };
    let wait = |so_far: Duration, reason| {
        if so_far >= facts.fence_after {
            close(reason)
        } else if matches!(facts.protection, Protection::Unprotected { .. }) {
            close(CloseReason::Unprotected)
        } else if closed {
            WriteAction::Stay(StayReason::Closed(reason))
        } else {
            WriteAction::Stay(StayReason::Open)
        }
    };
    let term = match facts.leading {
        Leading::No(so_far) => return wait(so_far, CloseReason::NotLeader),
        Leading::Silent(so_far) => return wait(so_far, CloseReason::QuorumSilent),
        // No leader will acknowledge a commit on this server, so waiting has no purpose.
        Leading::Elsewhere(member) => return close(CloseReason::AnotherLeads(member)),
        Leading::Serving(_) if facts.transferring => return close(CloseReason::Switchover),
        Leading::Serving(term) => term,
    };
    let open = server.read_only == ReadOnly::Off;
    match (&facts.protection, facts.readiness) {
        (Protection::Unknown { .. }, _) => return WriteAction::Stay(StayReason::Unknown),
        // While the applier runs, no commit waits for the ring, and none needs to.
        (_, Readiness::Applying) => return close(CloseReason::Incomplete),
        (Protection::Unprotected { .. }, _) => return close(CloseReason::Unprotected),
        (Protection::Protected, Readiness::Lacks) => return close(CloseReason::Incomplete),
        // The comparison also closes the server. This earlier attempt shows whether waiting commits prevent the close.
        (Protection::Protected, readiness) if facts.followed && !readiness.allows(term) && open => {
            return close(CloseReason::Incomplete);
        }
        // An open server stays open: the comparison has not found that it lacks anything.
        (Protection::Protected, readiness) if !readiness.allows(term) && !open => {
            return WriteAction::Stay(StayReason::Closed(CloseReason::Incomplete));
        }
        (Protection::Protected, _) => {}
    }
    let complete = facts.attached && facts.readiness.allows(term);
    if open && complete && memory.opened != Some((term, server.incarnation)) {
        WriteAction::TakeOverOpen(term)
    } else if open {
        WriteAction::Stay(StayReason::Open)
    } else if memory.opened == Some((term, server.incarnation)) && !memory.closed_by_us {
        WriteAction::Stay(StayReason::ClosedByOthers)
    } else if facts.attached && memory.prepared == Some((term, server.incarnation)) {
        WriteAction::Open(term)
    } else if facts.attached {
        WriteAction::Prepare(term)
    } else {
        WriteAction::Stay(StayReason::ClosedUntilAttached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::IngestState;
    use crate::plan::facts::{LockoutPatience, ServerView};

    const TERM: Term = Term(3);
    const PATIENCE: Duration = Duration::from_secs(3);
    const NO: Leading = Leading::No(PATIENCE);
    const BETWEEN: Leading = Leading::No(Duration::from_secs(1));
    const SILENT: Leading = Leading::Silent(PATIENCE);
    const ELSEWHERE: Leading = Leading::Elsewhere(MemberId(4));
    const PAUSE: Leading = Leading::Silent(Duration::from_secs(1));

    fn facts(leading: Leading, read_only: ReadOnly) -> Facts {
        Facts {
            leading,
            attached: true,
            readiness: Readiness::Always,
            protection: Protection::Protected,
            server: Some(ServerView {
                incarnation: 1,
                read_only,
                offline: false,
            }),
            ..Facts::unknown(PATIENCE, LockoutPatience::new(None))
        }
    }

    /// The state after all queries that must precede opening.
    fn prepared() -> WriteMemory {
        WriteMemory {
            prepared: Some((TERM, 1)),
            ..WriteMemory::default()
        }
    }

    fn unprotected() -> Protection {
        Protection::Unprotected {
            findings: Vec::new(),
        }
    }

    fn unknown() -> Protection {
        Protection::Unknown {
            cause: String::new(),
        }
    }

    #[test]
    fn what_to_do() {
        use CloseReason::AnotherLeads;
        use CloseReason::NotLeader;
        use CloseReason::QuorumSilent;
        use CloseReason::Unprotected;
        use Leading::Serving;
        use Protection::Protected;
        use ReadOnly::Clients;
        use ReadOnly::Everybody;
        use ReadOnly::Off;
        use StayReason::Closed;
        use StayReason::ClosedByOthers;
        use StayReason::ClosedUntilAttached;
        use WriteAction::Close;
        use WriteAction::Open;
        use WriteAction::Stay;

        let never = prepared();
        let opened = WriteMemory {
            opened: Some((TERM, 1)),
            ..prepared()
        };
        let closed_it = WriteMemory {
            closed_by_us: true,
            ..opened
        };
        let earlier_term = WriteMemory {
            opened: Some((Term(2), 1)),
            ..prepared()
        };
        let earlier_start = WriteMemory {
            opened: Some((TERM, 0)),
            ..prepared()
        };
        let serving = Serving(TERM);
        let table = [
            (NO, true, Protected, Off, opened, Close(NotLeader)),
            (BETWEEN, true, Protected, Off, never, Stay(StayReason::Open)),
            (
                BETWEEN,
                true,
                Protected,
                Everybody,
                never,
                Stay(Closed(NotLeader)),
            ),
            (NO, true, Protected, Clients, opened, Close(NotLeader)),
            (
                NO,
                false,
                unknown(),
                Everybody,
                opened,
                Stay(Closed(NotLeader)),
            ),
            (
                ELSEWHERE,
                true,
                Protected,
                Off,
                opened,
                Close(AnotherLeads(MemberId(4))),
            ),
            (
                ELSEWHERE,
                false,
                unknown(),
                Everybody,
                closed_it,
                Stay(Closed(AnotherLeads(MemberId(4)))),
            ),
            (SILENT, true, Protected, Off, opened, Close(QuorumSilent)),
            (
                SILENT,
                true,
                Protected,
                Everybody,
                closed_it,
                Stay(Closed(QuorumSilent)),
            ),
            (PAUSE, true, Protected, Off, opened, Stay(StayReason::Open)),
            // A server that was never observed may be protected, so the start of the member closes nothing.
            (
                BETWEEN,
                false,
                unknown(),
                Off,
                never,
                Stay(StayReason::Open),
            ),
            (PAUSE, true, unknown(), Off, opened, Stay(StayReason::Open)),
            (
                BETWEEN,
                false,
                unprotected(),
                Off,
                never,
                Close(Unprotected),
            ),
            (
                BETWEEN,
                false,
                unprotected(),
                Clients,
                never,
                Close(Unprotected),
            ),
            (
                BETWEEN,
                false,
                unprotected(),
                Everybody,
                closed_it,
                Stay(Closed(Unprotected)),
            ),
            (PAUSE, true, unprotected(), Off, opened, Close(Unprotected)),
            (NO, false, unprotected(), Off, never, Close(NotLeader)),
            (
                NO,
                false,
                unprotected(),
                Everybody,
                closed_it,
                Stay(Closed(NotLeader)),
            ),
            (
                PAUSE,
                true,
                Protected,
                Everybody,
                never,
                Stay(Closed(QuorumSilent)),
            ),
            (serving, true, Protected, Everybody, never, Open(TERM)),
            (serving, true, Protected, Clients, never, Open(TERM)),
            (
                serving,
                true,
                Protected,
                Off,
                opened,
                Stay(StayReason::Open),
            ),
            (
                serving,
                false,
                Protected,
                Off,
                opened,
                Stay(StayReason::Open),
            ),
            (
                serving,
                false,
                Protected,
                Everybody,
                never,
                Stay(ClosedUntilAttached),
            ),
            (
                serving,
                true,
                unprotected(),
                Off,
                opened,
                Close(Unprotected),
            ),
            (
                serving,
                true,
                unprotected(),
                Everybody,
                opened,
                Stay(Closed(Unprotected)),
            ),
            // The server is already open: nothing is closed, and its binlog is prepared for a trim.
            (
                serving,
                true,
                Protected,
                Off,
                never,
                WriteAction::TakeOverOpen(TERM),
            ),
            (
                serving,
                true,
                Protected,
                Off,
                earlier_start,
                WriteAction::TakeOverOpen(TERM),
            ),
            (
                serving,
                false,
                Protected,
                Off,
                never,
                Stay(StayReason::Open),
            ),
            (serving, true, Protected, Everybody, closed_it, Open(TERM)),
            (
                serving,
                true,
                Protected,
                Everybody,
                opened,
                Stay(ClosedByOthers),
            ),
            (
                serving,
                true,
                Protected,
                Clients,
                opened,
                Stay(ClosedByOthers),
            ),
            (
                serving,
                true,
                Protected,
                Everybody,
                earlier_term,
                Open(TERM),
            ),
            (
                serving,
                true,
                Protected,
                Everybody,
                earlier_start,
                Open(TERM),
            ),
            (
                serving,
                true,
                unknown(),
                Off,
                opened,
                Stay(StayReason::Unknown),
            ),
        ];
        for (leading, attached, protection, read_only, memory, expected) in table {
            let facts = Facts {
                attached,
                protection,
                ..facts(leading, read_only)
            };
            let decided = decide(&facts, &memory);
            assert_eq!(decided, expected, "{facts:?} {memory:?}");
            let unprepared = WriteMemory {
                prepared: Some((Term(2), 1)),
                ..memory
            };
            let decided = decide(&facts, &unprepared);
            let expected = match expected {
                Open(term) => WriteAction::Prepare(term),
                expected => expected,
            };
            assert_eq!(decided, expected, "{facts:?} {unprepared:?}");
        }
        let unseen = Facts {
            server: None,
            ..facts(NO, Off)
        };
        assert_eq!(decide(&unseen, &never), Stay(StayReason::Unknown));
    }

    #[test]
    fn a_look_before_the_attachment_opens_nothing() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut ingest = IngestStatus::new(began);
        let serving = Leading::Serving(TERM);
        assert!(!is_attached_and_looked_at(&ingest, serving, at(9)));
        ingest.go(IngestState::Attached, at(5));
        for (attached_in, looked_at, expected) in [
            (Some(TERM), 4, false),
            (Some(TERM), 5, true),
            (Some(TERM), 6, true),
            (Some(Term(2)), 6, false),
            (None, 6, false),
        ] {
            ingest.term = attached_in;
            let found = is_attached_and_looked_at(&ingest, serving, at(looked_at));
            assert_eq!(found, expected, "{attached_in:?} {looked_at}");
        }
    }

    #[test]
    fn what_has_followed_is_closed_until_it_is_compared() {
        for (readiness, protection, expected) in [
            (
                Readiness::Unknown,
                Protection::Protected,
                WriteAction::Close(CloseReason::Incomplete),
            ),
            (
                Readiness::In(Term(2)),
                Protection::Protected,
                WriteAction::Close(CloseReason::Incomplete),
            ),
            (
                Readiness::Unknown,
                unknown(),
                WriteAction::Stay(StayReason::Unknown),
            ),
        ] {
            let open = Facts {
                readiness,
                protection,
                followed: true,
                ..facts(Leading::Serving(TERM), ReadOnly::Off)
            };
            assert_eq!(decide(&open, &prepared()), expected, "{open:?}");
            // A server that is closed to clients is left to the comparison, which does not kill because of a backup.
            let closed = Facts {
                readiness,
                followed: true,
                ..facts(Leading::Serving(TERM), ReadOnly::Clients)
            };
            let stays = WriteAction::Stay(StayReason::Closed(CloseReason::Incomplete));
            assert_eq!(decide(&closed, &prepared()), stays, "{closed:?}");
        }
    }

    #[test]
    fn it_opens_only_once_everything_is_there() {
        use CloseReason::AnotherLeads;
        use CloseReason::Incomplete;
        use CloseReason::Switchover;
        use CloseReason::Unprotected;
        use ReadOnly::Clients;
        use ReadOnly::Everybody;
        use ReadOnly::Off;
        use Readiness::Always;
        use Readiness::Applying;
        use Readiness::In;
        use Readiness::Lacks;
        use Readiness::Unknown;
        use StayReason::Closed;
        use WriteAction::Close;
        use WriteAction::Open;
        use WriteAction::Stay;
        let serving = Leading::Serving(TERM);
        let earlier = In(Term(2));
        let table = [
            (serving, Unknown, Everybody, false, Stay(Closed(Incomplete))),
            (serving, Unknown, Off, false, Stay(StayReason::Open)),
            (serving, Lacks, Off, false, Close(Incomplete)),
            (serving, Lacks, Everybody, false, Stay(Closed(Incomplete))),
            (serving, Applying, Clients, false, Stay(Closed(Incomplete))),
            (serving, Applying, Off, false, Close(Incomplete)),
            (serving, earlier, Everybody, false, Stay(Closed(Incomplete))),
            (serving, earlier, Off, false, Stay(StayReason::Open)),
            (serving, In(TERM), Everybody, false, Open(TERM)),
            (serving, In(TERM), Clients, false, Open(TERM)),
            (serving, Always, Clients, false, Open(TERM)),
            (serving, In(TERM), Off, true, Close(Switchover)),
            (serving, In(TERM), Everybody, true, Stay(Closed(Switchover))),
            (
                ELSEWHERE,
                Applying,
                Clients,
                false,
                Stay(Closed(AnotherLeads(MemberId(4)))),
            ),
            (
                ELSEWHERE,
                Lacks,
                Clients,
                false,
                Close(AnotherLeads(MemberId(4))),
            ),
            (
                ELSEWHERE,
                Applying,
                Off,
                false,
                Close(AnotherLeads(MemberId(4))),
            ),
        ];
        for (leading, readiness, read_only, transferring, expected) in table {
            let facts = Facts {
                readiness,
                transferring,
                ..facts(leading, read_only)
            };
            assert_eq!(decide(&facts, &prepared()), expected, "{facts:?}");
            let unprotected = Facts {
                protection: unprotected(),
                ..facts
            };
            let decided = decide(&unprotected, &prepared());
            assert!(!matches!(decided, Open(_)), "{unprotected:?}");
            // A follower's commits wait for no ACK. That is no reason to close the server to the applier.
            if readiness == Applying {
                assert_ne!(decided, Close(Unprotected), "{unprotected:?}");
            }
        }
    }
}
