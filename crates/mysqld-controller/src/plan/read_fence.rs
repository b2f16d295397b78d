//! Decides whether ordinary accounts may read. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::plan::facts::Facts;
use crate::ring::Leading;
use crate::status::ReadFenceReason;
use crate::watch::ReadOnly;

/// The read fence's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFenceAction {
    /// Block ordinary accounts with `offline_mode`.
    Raise(ReadFenceReason),
    /// Admit ordinary accounts again, unless another account set `offline_mode`.
    Lower,
    /// Leave `offline_mode` as it is.
    Stay,
}

/// State that the decision keeps between two plans.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadFenceMemory {
    /// The start of mysqld in which clients used it as the primary; `None` if it has followed since.
    primary_in: Option<u64>,
    /// Since when this member has not served as the leader.
    unserved_since: Option<Instant>,
}

impl ReadFenceMemory {
    /// True if clients use this server as the primary, as far as this member has observed.
    pub fn guards(&self) -> bool {
        self.primary_in.is_some()
    }

    /// When the grace period of a member that does not serve ends.
    pub(crate) fn grace_ends(&self, grace: Duration) -> Option<Instant> {
        self.unserved_since.map(|since| since + grace)
    }

    /// Decides the next action.
    ///
    /// A follower is never fenced, because its readers accept stale data. A former primary counts as a primary until it follows or
    /// restarts, whatever member leads and whatever the write fence has done, because its sessions are those of a primary.
    pub(super) fn decide(&mut self, facts: &Facts, now: Instant) -> ReadFenceAction {
        let Some(view) = facts.server else {
            return ReadFenceAction::Stay;
        };
        let server = view.incarnation;
        let follows = facts.follows();
        let serves = match facts.leading {
            Leading::Serving(term) => facts.readiness.allows(term),
            _ => false,
        };
        if self.primary_in.is_some_and(|start| start != server) || follows {
            self.primary_in = None;
        }
        // Includes a server that was opened before this member restarted.
        if !follows && (serves || view.read_only == ReadOnly::Off) {
            self.primary_in = Some(server);
        }
        self.unserved_since = match facts.leading {
            Leading::Serving(_) => None,
            // The lease may have ended long before this check, if the member's process was stopped in between.
            Leading::Silent(so_far) | Leading::No(so_far) => {
                let since = now.checked_sub(so_far).unwrap_or(now);
                Some(self.unserved_since.map_or(since, |known| known.min(since)))
            }
            Leading::Elsewhere(_) => self.unserved_since.or(Some(now)),
        };
        if view.offline {
            return match serves || follows {
                true => ReadFenceAction::Lower,
                false => ReadFenceAction::Stay,
            };
        }
        if self.primary_in.is_none() || !facts.others {
            return ReadFenceAction::Stay;
        }
        let unserved = self.unserved_since.map(|since| now.duration_since(since));
        let is_due = unserved.is_some_and(|unserved| unserved >= facts.fence_after);
        match facts.leading {
            // A server that is closed for writes is about to follow, and that step closes its sessions.
            Leading::Elsewhere(member) if is_due || view.read_only == ReadOnly::Off => {
                ReadFenceAction::Raise(ReadFenceReason::AnotherLeads(member))
            }
            Leading::Silent(_) if is_due => ReadFenceAction::Raise(ReadFenceReason::QuorumSilent),
            Leading::No(_) if is_due => ReadFenceAction::Raise(ReadFenceReason::NotLeader),
            _ => ReadFenceAction::Stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use raft_types::{MemberId, Term};

    use super::*;
    use crate::plan::facts::{Applier, LockoutPatience, ServerView};
    use crate::status::Readiness;

    const TERM: Term = Term(3);
    const GRACE: Duration = Duration::from_secs(10);
    const SERVING: Leading = Leading::Serving(TERM);
    const SILENT: Leading = Leading::Silent(Duration::ZERO);
    const NO: Leading = Leading::No(Duration::ZERO);
    const ELSEWHERE: Leading = Leading::Elsewhere(MemberId(4));

    fn primary(leading: Leading) -> Facts {
        Facts {
            leading,
            readiness: Readiness::In(TERM),
            server: Some(ServerView {
                incarnation: 1,
                read_only: ReadOnly::Off,
                offline: false,
            }),
            others: true,
            ..Facts::unknown(GRACE, LockoutPatience::new(None))
        }
    }

    fn seen(facts: Facts, change: impl FnOnce(&mut ServerView)) -> Facts {
        let mut server = facts.server.unwrap();
        change(&mut server);
        Facts {
            server: Some(server),
            ..facts
        }
    }

    fn closed(leading: Leading) -> Facts {
        seen(primary(leading), |server| {
            server.read_only = ReadOnly::Everybody
        })
    }

    fn follower(leading: Leading) -> Facts {
        let facts = Facts {
            readiness: Readiness::Applying,
            applier: Applier::Applying(1),
            ..primary(leading)
        };
        seen(facts, |server| server.read_only = ReadOnly::Clients)
    }

    /// Returns the decisions at the given seconds: `.` stays, `!` raises, `v` lowers. After a raise, the test shows the server as offline.
    fn course(steps: &[(u64, Facts)]) -> String {
        let begin = Instant::now();
        let mut fence = ReadFenceMemory::default();
        let act = |(second, facts): &(u64, Facts)| match fence
            .decide(facts, begin + Duration::from_secs(*second))
        {
            ReadFenceAction::Stay => '.',
            ReadFenceAction::Raise(_) => '!',
            ReadFenceAction::Lower => 'v',
        };
        steps.iter().map(act).collect()
    }

    #[test]
    fn a_primary_that_is_cut_off_is_fenced_when_its_grace_is_over() {
        let offline = |facts| seen(facts, |server| server.offline = true);
        let lacks = |facts: Facts| Facts {
            readiness: Readiness::Lacks,
            ..facts
        };
        let restarted = |facts: Facts| {
            let facts = Facts {
                readiness: Readiness::Unknown,
                ..facts
            };
            seen(facts, |server| server.incarnation = 2)
        };
        let alone = |facts: Facts| Facts {
            others: false,
            ..facts
        };
        let unseen = |facts: Facts| Facts {
            server: None,
            ..facts
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
                "the lease ended seven seconds before the first check",
                vec![
                    (0, primary(SERVING)),
                    (8, primary(Leading::Silent(Duration::from_secs(7)))),
                    (10, primary(Leading::No(Duration::from_secs(9)))),
                    (11, primary(Leading::Silent(Duration::from_secs(10)))),
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
                "the member was restarted next to an open primary",
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
                "a switchover after which it does not follow",
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
                "restarted and closed, it is no primary",
                vec![
                    (0, primary(SERVING)),
                    (1, restarted(closed(NO))),
                    (99, restarted(closed(NO))),
                ],
                "...",
            ),
            (
                "no other mysqld could be the primary",
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
