//! Whether ordinary accounts are to be kept off, pure.

use std::fmt;
use std::time::{Duration, Instant};

use raft_types::MemberId;
use serde::Serialize;

use crate::leading::Leading;
use crate::role_status::Readiness;
use crate::watch::ReadOnly;

/// Everything that the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct FenceView {
    /// What this member is.
    pub leading: Leading,
    /// Whether the server may be the primary.
    pub readiness: Readiness,
    /// Whether the ring's log is being applied to it.
    pub follows: bool,
    /// Which start of mysqld was looked at last; none before the first look.
    pub server: Option<u64>,
    /// Who may write there.
    pub read_only: ReadOnly,
    /// Whether it is in `offline_mode`.
    pub offline: bool,
    /// Whether another member's mysqld could become the primary. Without one, what is read here is never old.
    pub others: bool,
    /// How long the sessions stay while this member does not serve.
    pub grace: Duration,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceAction {
    /// Keep ordinary accounts off.
    Raise(FenceReason),
    /// Let them in again, unless somebody else keeps them off.
    Lower,
    /// Leave it as it is.
    Stay,
}

/// Why ordinary accounts are kept off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceReason {
    /// No quorum of the ring answers.
    QuorumSilent,
    /// This member does not lead, and knows of nobody who does.
    NotLeader,
    /// The primary is beside another member.
    AnotherLeads(MemberId),
    /// The member has stopped working.
    MemberFailed,
}

impl fmt::Display for FenceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuorumSilent => f.write_str("no quorum of the ring answers"),
            Self::NotLeader => f.write_str("this member does not lead, and knows of no leader"),
            Self::AnotherLeads(member) => write!(f, "the primary is beside member {member}"),
            Self::MemberFailed => f.write_str("the member has stopped working"),
        }
    }
}

/// Remembers what the decision needs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fence {
    /// The start of mysqld in which it was the primary for its clients, and has not followed since.
    primary_in: Option<u64>,
    /// Since when this member has not served.
    unserved_since: Option<Instant>,
}

impl Fence {
    /// Whether clients take this server for the primary, as far as is known.
    pub fn guards(&self) -> bool {
        self.primary_in.is_some()
    }

    /// When the grace of a member that does not serve is over.
    pub(crate) fn grace_ends(&self, grace: Duration) -> Option<Instant> {
        self.unserved_since.map(|since| since + grace)
    }

    /// Decides.
    ///
    /// A follower is never fenced: whoever reads there asked for what may be late. A server that was the primary is one until
    /// it follows or is started anew, whoever leads and whatever the gate has done: its sessions are those of a primary.
    pub fn decide(&mut self, view: &FenceView, now: Instant) -> FenceAction {
        let Some(server) = view.server else {
            return FenceAction::Stay;
        };
        let serves = match view.leading {
            Leading::Serving(term) => view.readiness.allows(term),
            _ => false,
        };
        if self.primary_in.is_some_and(|start| start != server) || view.follows {
            self.primary_in = None;
        }
        // Also one that an earlier life of this member has opened.
        if !view.follows && (serves || view.read_only == ReadOnly::Off) {
            self.primary_in = Some(server);
        }
        if matches!(view.leading, Leading::Serving(_)) {
            self.unserved_since = None;
        } else {
            self.unserved_since.get_or_insert(now);
        }
        if view.offline {
            return match serves || view.follows {
                true => FenceAction::Lower,
                false => FenceAction::Stay,
            };
        }
        if self.primary_in.is_none() || !view.others {
            return FenceAction::Stay;
        }
        let unserved = self.unserved_since.map(|since| now.duration_since(since));
        let is_due = unserved.is_some_and(|unserved| unserved >= view.grace);
        match view.leading {
            // Closed for writes it is about to follow, and its sessions are closed on the way there.
            Leading::Elsewhere(member) if is_due || view.read_only == ReadOnly::Off => {
                FenceAction::Raise(FenceReason::AnotherLeads(member))
            }
            Leading::Silent(_) if is_due => FenceAction::Raise(FenceReason::QuorumSilent),
            Leading::No(_) if is_due => FenceAction::Raise(FenceReason::NotLeader),
            _ => FenceAction::Stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::LeaderTerm;

    const TERM: LeaderTerm = LeaderTerm(3);
    const GRACE: Duration = Duration::from_secs(10);
    const SERVING: Leading = Leading::Serving(TERM);
    const SILENT: Leading = Leading::Silent(Duration::ZERO);
    const NO: Leading = Leading::No(Duration::ZERO);
    const ELSEWHERE: Leading = Leading::Elsewhere(MemberId(4));

    fn primary(leading: Leading) -> FenceView {
        FenceView {
            leading,
            readiness: Readiness::In(TERM),
            follows: false,
            server: Some(1),
            read_only: ReadOnly::Off,
            offline: false,
            others: true,
            grace: GRACE,
        }
    }

    fn closed(leading: Leading) -> FenceView {
        FenceView {
            read_only: ReadOnly::Everybody,
            ..primary(leading)
        }
    }

    fn follower(leading: Leading) -> FenceView {
        FenceView {
            readiness: Readiness::Applying,
            follows: true,
            read_only: ReadOnly::Clients,
            ..primary(leading)
        }
    }

    /// `.` stays, `!` raises, `v` lowers; at the seconds given. What was raised is seen as offline by the test's own views.
    fn course(steps: &[(u64, FenceView)]) -> String {
        let begin = Instant::now();
        let mut fence = Fence::default();
        let act = |(second, view): &(u64, FenceView)| match fence
            .decide(view, begin + Duration::from_secs(*second))
        {
            FenceAction::Stay => '.',
            FenceAction::Raise(_) => '!',
            FenceAction::Lower => 'v',
        };
        steps.iter().map(act).collect()
    }

    #[test]
    fn a_primary_that_is_cut_off_is_fenced_when_its_grace_is_over() {
        let offline = |view: FenceView| FenceView {
            offline: true,
            ..view
        };
        let lacks = |view: FenceView| FenceView {
            readiness: Readiness::Lacks,
            ..view
        };
        let restarted = |view: FenceView| FenceView {
            server: Some(2),
            readiness: Readiness::Unknown,
            ..view
        };
        let alone = |view: FenceView| FenceView {
            others: false,
            ..view
        };
        let unseen = |view: FenceView| FenceView {
            server: None,
            ..view
        };
        let table = [
            (
                "the quorum is silent",
                vec![
                    (0, primary(SERVING)),
                    (1, primary(SILENT)),
                    (10, primary(SILENT)),
                    (11, primary(SILENT)),
                ],
                "...!",
            ),
            (
                "closed for writes, its sessions still read",
                vec![
                    (0, primary(SERVING)),
                    (1, closed(SILENT)),
                    (11, closed(SILENT)),
                ],
                "..!",
            ),
            (
                "a short silence is borne, and the next one is another one",
                vec![
                    (0, primary(SERVING)),
                    (1, primary(SILENT)),
                    (9, primary(SERVING)),
                    (12, primary(SILENT)),
                    (21, primary(SILENT)),
                    (22, primary(SILENT)),
                ],
                ".....!",
            ),
            (
                "the member was started anew beside an open primary",
                vec![
                    (0, restarted(primary(NO))),
                    (9, restarted(primary(NO))),
                    (10, restarted(primary(NO))),
                ],
                "..!",
            ),
            (
                "another one leads while it is open",
                vec![(0, primary(SERVING)), (1, primary(ELSEWHERE))],
                ".!",
            ),
            (
                "a switchover: it is closed, and follows soon",
                vec![
                    (0, primary(SERVING)),
                    (1, closed(ELSEWHERE)),
                    (2, follower(ELSEWHERE)),
                    (99, follower(ELSEWHERE)),
                ],
                "....",
            ),
            (
                "a switchover behind which it does not follow",
                vec![
                    (0, primary(SERVING)),
                    (1, closed(ELSEWHERE)),
                    (11, lacks(closed(ELSEWHERE))),
                ],
                "..!",
            ),
            (
                "a follower that is cut off",
                vec![
                    (0, follower(ELSEWHERE)),
                    (1, follower(NO)),
                    (99, follower(NO)),
                ],
                "...",
            ),
            (
                "started anew and closed, it is nobody's primary",
                vec![
                    (0, primary(SERVING)),
                    (1, restarted(closed(NO))),
                    (99, restarted(closed(NO))),
                ],
                "...",
            ),
            (
                "nobody else's mysqld could be the primary",
                vec![(0, alone(primary(SERVING))), (99, alone(primary(SILENT)))],
                "..",
            ),
            (
                "what cannot be seen is left",
                vec![(0, primary(SERVING)), (99, unseen(primary(SILENT)))],
                "..",
            ),
            (
                "it stays fenced until it is the primary again",
                vec![
                    (0, offline(primary(SILENT))),
                    (99, offline(closed(NO))),
                    (100, offline(lacks(primary(SERVING)))),
                    (101, offline(closed(SERVING))),
                ],
                "...v",
            ),
            (
                "or a replica",
                vec![
                    (0, offline(closed(ELSEWHERE))),
                    (1, offline(follower(ELSEWHERE))),
                ],
                ".v",
            ),
        ];
        for (what, steps, expected) in table {
            assert_eq!(course(&steps), expected, "{what}");
        }
    }
}
