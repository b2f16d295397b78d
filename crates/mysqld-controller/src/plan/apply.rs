//! Decides what to do with the ring's log on the server: compare, apply, or nothing. Pure.

use raft_types::Term;
use tokio::time::Instant;

use crate::plan::facts::{Applier, ApplyAction as Action, Facts, Incarnation, Kill, Writers};
use crate::plan::kill::{
    is_locked_out, is_stuck, waits_for_ack, waits_for_prepared, waits_though_closed,
};
use crate::ring::Leading;
use crate::status::Readiness;
use crate::watch::ReadOnly;

/// Decides the action on the ring's log.
pub(super) fn decide(facts: &Facts, now: Instant) -> Action {
    if let Some(doing) = facts.applying {
        return go_on(facts, doing);
    }
    if facts.stopping {
        return match facts.applier.on() {
            Some(_) => Action::EndApplier,
            None => Action::Stay,
        };
    }
    if facts.held {
        return hold(facts);
    }
    let Some(server) = facts.seen() else {
        // The applier itself waits for a server that is unreachable for some time.
        return unseen(facts);
    };
    if facts.applier.on().is_some_and(|start| start != server) {
        return Action::EndApplier;
    }
    if waits_for_prepared(facts) {
        return Action::Kill(Kill::HeldUpByPrepared);
    }
    match facts.leading {
        Leading::Serving(term) => lead(facts, server, term, now),
        // The next leader, which may be this member, finds the server unchanged.
        Leading::Silent(_) => Action::Stay,
        Leading::Elsewhere(_) if is_stuck(facts) || waits_though_closed(facts) => {
            Action::Kill(Kill::Stuck)
        }
        Leading::Elsewhere(_) | Leading::No(_) => follow(facts, now),
    }
}

/// Decides about an action in progress. A comparison and the wait for the end of the log belong to one leadership, and may take long.
fn go_on(facts: &Facts, doing: Action) -> Action {
    let (Action::Compare(term) | Action::Finish(term)) = doing else {
        return Action::Stay;
    };
    let is_over = match facts.leading {
        Leading::Serving(now) => now != term,
        Leading::Silent(_) => false,
        Leading::Elsewhere(_) | Leading::No(_) => true,
    };
    if is_over || facts.held || facts.stopping {
        Action::BreakOff
    } else if facts.seen().is_none() {
        unseen(facts)
    } else if waits_for_prepared(facts) {
        Action::Kill(Kill::HeldUpByPrepared)
    } else {
        Action::Stay
    }
}

/// An unreachable server is left alone, except one that refuses every login.
fn unseen(facts: &Facts) -> Action {
    match is_locked_out(facts) {
        true => Action::Kill(Kill::LockedOut),
        false => Action::Stay,
    }
}

/// Ends the applier in any leadership, because the data are partly replaced. Waiting commits would keep the server open, and the leadership
/// with it.
fn hold(facts: &Facts) -> Action {
    let another_may_come = matches!(facts.leading, Leading::Serving(_) | Leading::Elsewhere(_));
    match (facts.applier, facts.readiness) {
        (Applier::Asking { .. } | Applier::Applying(_), _) => Action::EndApplier,
        _ if another_may_come && is_stuck(facts) => Action::Kill(Kill::Stuck),
        // The server stays as while the applier runs: only administrators write, and nothing opens.
        (_, Readiness::Applying) => Action::Stay,
        _ => Action::Hold,
    }
}

fn lead(facts: &Facts, server: Incarnation, term: Term, now: Instant) -> Action {
    let failed_in = |term| facts.compare_not_before.is_some_and(|(of, _)| of == term);
    let waits = failed_in(term) && facts.compare_not_before.is_some_and(|(_, at)| now < at);
    match facts.applier {
        Applier::Applying(_) if waits => return Action::Stay,
        Applier::Applying(_) => return Action::Finish(term),
        Applier::Asking { for_term, .. } if for_term == Some(term) => return Action::Finish(term),
        // This applier was started in another leadership, so it does not show what the server lacks in this one.
        Applier::Asking { .. } => return Action::EndApplier,
        Applier::Off | Applier::Failed(_) => {}
    }
    let found_now = facts.found_in == Some((server, term));
    if facts.readiness.allows(term) && found_now {
        return Action::Stay;
    }
    let is_open = facts.server.map(|server| server.read_only) == Some(ReadOnly::Off);
    match facts.readiness {
        Readiness::Always => Action::Stay,
        // The server should follow and commits wait. It is closed before it is compared, and receives no ACK before that.
        Readiness::Applying if is_stuck(facts) => Action::Kill(Kill::Stuck),
        // The same holds after an applier gave up because of waiting commits, and after a restart of the member. If clients cannot write
        // anyway, the close waits for a backup or a long statement, not for commits.
        _ if facts.followed && is_open && is_stuck(facts) => Action::Kill(Kill::Stuck),
        // Even if clients cannot write, administrators and XA can. Their commits prevent the comparison from closing the server to them
        // too.
        _ if facts.followed && waits_for_ack(facts) && failed_in(term) => Action::Kill(Kill::Stuck),
        // The waiting commits may be the ones that the server lacks: the ring has them, and this member ended before the ACK. If the leader
        // does not use this server as the primary, it sends no ACK, and nothing is applied while commits wait. Crash recovery commits the
        // transactions that the ring has.
        Readiness::Lacks if found_now && is_stuck(facts) => Action::Kill(Kill::Stuck),
        // Follows only if the server was compared in this leadership: an earlier failure of the applier does not show what the server
        // lacks.
        Readiness::Lacks if found_now => follow(facts, now),
        _ if waits => Action::Stay,
        _ => Action::Compare(term),
    }
}

fn follow(facts: &Facts, now: Instant) -> Action {
    let writers = Writers::of(&facts.write_fence, facts.seen());
    match facts.applier {
        Applier::Asking { .. } | Applier::Applying(_) => Action::Stay,
        Applier::Failed(not_before) if now < not_before => Action::Stay,
        Applier::Off | Applier::Failed(_) if writers == Writers::None => Action::Follow,
        Applier::Off | Applier::Failed(_) => Action::Stay,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use raft_types::MemberId;

    use super::*;
    use crate::plan::facts::{LockoutPatience, ServerView};
    use crate::status::WriteFenceState;
    use crate::watch::Protection;

    const TERM: Term = Term(3);
    const PATIENCE: LockoutPatience = LockoutPatience {
        elsewhere: Duration::from_secs(10),
        leading: Some(Duration::from_secs(40)),
    };
    const LONG: Duration = Duration::from_secs(1000);

    fn facts(leading: Leading, writers: Writers, server: Option<Incarnation>) -> Facts {
        Facts {
            leading,
            server: server.map(|incarnation| ServerView {
                incarnation,
                read_only: ReadOnly::Everybody,
                offline: false,
            }),
            protection: match server {
                Some(_) => Protection::Protected,
                None => Protection::Unknown {
                    cause: String::new(),
                },
            },
            write_fence: match writers {
                Writers::Unknown => WriteFenceState::Unknown,
                Writers::Clients => WriteFenceState::Open,
                Writers::None => WriteFenceState::Closed { why: String::new() },
                Writers::Stuck => WriteFenceState::NotClosed {
                    why: String::new(),
                    cause: String::new(),
                    stuck_in: server,
                },
            },
            can_restart: true,
            ..Facts::unknown(LONG, PATIENCE)
        }
    }

    #[test]
    fn a_server_that_lets_nobody_in_is_killed_where_nothing_else_helps() {
        const RESTART: Action = Action::Kill(Kill::LockedOut);
        use Action::Stay;
        let serving = Leading::Serving(TERM);
        let elsewhere = Leading::Elsewhere(MemberId(4));
        let (silent, no) = (Leading::Silent(LONG), Leading::No(LONG));
        let table = [
            (elsewhere, Some(10), false, RESTART),
            (elsewhere, Some(9), false, Stay),
            // The server is unreachable (starting or stopped), or completes logins.
            (elsewhere, None, false, Stay),
            // The leadership moves to another member first, if one can take it.
            (serving, Some(39), false, Stay),
            (serving, Some(40), false, RESTART),
            // The dump runs, so the ACK that the statement waits for can still arrive.
            (serving, Some(1000), true, Stay),
            (serving, None, false, Stay),
            // The next leader may attach and acknowledge.
            (silent, Some(1000), false, Stay),
            (no, Some(1000), false, Stay),
        ];
        let now = Instant::now();
        for (leading, seconds, takes_in, expected) in table {
            for applier in [
                Applier::Off,
                Applier::Applying(1),
                Applier::Failed(now + LONG),
            ] {
                let facts = Facts {
                    applier,
                    locked_out: seconds.map(Duration::from_secs),
                    takes_in,
                    ..facts(leading, Writers::Unknown, None)
                };
                let applies = matches!(applier, Applier::Applying(_));
                let expected = if applies { Stay } else { expected };
                assert_eq!(decide(&facts, now), expected, "{facts:?}");
                let ours_to_leave_alone = [
                    Facts {
                        can_restart: false,
                        ..facts.clone()
                    },
                    Facts {
                        held: true,
                        ..facts.clone()
                    },
                ];
                for facts in ours_to_leave_alone {
                    assert_ne!(decide(&facts, now), RESTART, "{facts:?}");
                }
                let patient = Facts {
                    lockout: LockoutPatience {
                        leading: None,
                        ..PATIENCE
                    },
                    ..facts
                };
                if leading == serving {
                    assert_eq!(decide(&patient, now), Stay, "{patient:?}");
                }
            }
        }
    }

    /// Columns: the write fence's state, the start last observed, and the decision on a member while another one leads.
    #[test]
    fn a_server_is_killed_only_where_commits_wait_in_the_start_that_is_looked_at() {
        use Action::Follow;
        const RESTART: Action = Action::Kill(Kill::Stuck);
        use Action::Stay;
        let not_closed = |stuck_in| WriteFenceState::NotClosed {
            why: "member 4 leads".to_owned(),
            cause: "a cause".to_owned(),
            stuck_in,
        };
        let closed = WriteFenceState::Closed { why: String::new() };
        let not_opened = WriteFenceState::NotOpened {
            cause: String::new(),
        };
        let table = [
            (not_closed(Some(1)), Some(1), Writers::Stuck, RESTART),
            // The server was killed and restarted, and the write fence has not reported on the new start.
            (not_closed(Some(1)), Some(2), Writers::Unknown, Stay),
            // The server was down during the attempt.
            (not_closed(None), Some(2), Writers::Unknown, Stay),
            (not_closed(None), Some(1), Writers::Unknown, Stay),
            // The new start is stuck as well, with the same message.
            (not_closed(Some(2)), Some(2), Writers::Stuck, RESTART),
            (not_closed(Some(1)), None, Writers::Unknown, Stay),
            (not_closed(None), None, Writers::Unknown, Stay),
            (closed, Some(1), Writers::None, Follow),
            (WriteFenceState::Open, Some(1), Writers::Clients, Stay),
            (not_opened, Some(1), Writers::Unknown, Stay),
            (WriteFenceState::Unknown, Some(1), Writers::Unknown, Stay),
        ];
        for (fence, server, writers, expected) in table {
            assert_eq!(Writers::of(&fence, server), writers, "{fence:?} {server:?}");
            let elsewhere = Leading::Elsewhere(MemberId(4));
            let facts = Facts {
                write_fence: fence.clone(),
                ..facts(elsewhere, writers, server)
            };
            let action = decide(&facts, Instant::now());
            assert_eq!(action, expected, "{fence:?} {server:?}");
        }
    }

    /// Regression: the write fence closed a primary, and then a client committed an XA transaction. This member no longer applied
    /// transactions, and advised its operator to restore a quorum, although the ring had one.
    #[test]
    fn commits_that_wait_behind_a_closed_door_are_ended_where_another_leads() {
        let now = Instant::now();
        let failed = Applier::Failed(now + Duration::from_secs(5));
        let elsewhere = Leading::Elsewhere(MemberId(4));
        let decided = |leading, applier, sessions_wait, can_restart| {
            let facts = Facts {
                applier,
                sessions_wait,
                can_restart,
                ..facts(leading, Writers::None, Some(1))
            };
            decide(&facts, now)
        };
        let stuck = Action::Kill(Kill::Stuck);
        assert_eq!(decided(elsewhere, failed, true, true), stuck);
        // No applier has run yet, and the waiting commits may be about to end.
        assert_eq!(decided(elsewhere, Applier::Off, true, true), Action::Follow);
        assert_eq!(decided(elsewhere, failed, false, true), Action::Stay);
        assert_eq!(decided(elsewhere, failed, true, false), Action::Stay);
        // Without a leader, it is unknown which transactions are committed.
        let leaderless = Leading::No(LONG);
        assert_eq!(decided(leaderless, failed, true, true), Action::Stay);
    }

    /// The ring had another leader in between, and the server began to follow. It receives no ACK before it is compared, and must be closed
    /// before that.
    #[test]
    fn commits_that_keep_a_comparison_from_closing_the_server_are_ended() {
        let now = Instant::now();
        let decided = |followed, sessions_wait, can_restart, failed_in: Term| {
            let facts = Facts {
                followed,
                sessions_wait,
                can_restart,
                readiness: Readiness::Unknown,
                compare_not_before: Some((failed_in, now)),
                ..facts(Leading::Serving(TERM), Writers::None, Some(1))
            };
            decide(&facts, now)
        };
        let compare = Action::Compare(TERM);
        assert_eq!(decided(true, true, true, TERM), Action::Kill(Kill::Stuck));
        // A backup or a long statement ends without a kill.
        assert_eq!(decided(true, false, true, TERM), compare);
        // Ingest attaches to the server without closing it.
        assert_eq!(decided(false, true, true, TERM), compare);
        assert_eq!(decided(true, true, false, TERM), compare);
        assert_eq!(decided(true, true, true, Term(2)), compare);
    }

    /// The applied transaction waits, and so does a promotion. Without a leader, it is unknown what the next start may cut.
    #[test]
    fn what_waits_for_locks_of_a_prepared_transaction_is_ended_by_a_start() {
        let now = Instant::now();
        let decided = |leading, applier, applying, can_restart| {
            let facts = Facts {
                applier,
                applying,
                held_up_by_prepared: true,
                can_restart,
                ..facts(leading, Writers::None, Some(1))
            };
            decide(&facts, now)
        };
        let killed = Action::Kill(Kill::HeldUpByPrepared);
        let (applying, finishing) = (Applier::Applying(1), Some(Action::Finish(TERM)));
        let (elsewhere, serving) = (Leading::Elsewhere(MemberId(4)), Leading::Serving(TERM));
        assert_eq!(decided(elsewhere, applying, None, true), killed);
        assert_eq!(decided(serving, applying, finishing, true), killed);
        // The action belongs to a leadership that has ended.
        let over = decided(elsewhere, applying, finishing, true);
        assert_eq!(over, Action::BreakOff);
        assert_eq!(decided(elsewhere, applying, None, false), Action::Stay);
        let leaderless = Leading::No(LONG);
        assert_eq!(decided(leaderless, applying, None, true), Action::Stay);
        // The next start of mysqld ended the reported applier.
        let old = Applier::Applying(2);
        assert_eq!(decided(elsewhere, old, None, true), Action::EndApplier);
    }

    #[test]
    fn what_to_do() {
        use Action::Compare;
        use Action::EndApplier;
        use Action::Finish;
        use Action::Follow;
        const RESTART: Action = Action::Kill(Kill::Stuck);
        use Action::Stay;
        use Applier::Applying;
        use Applier::Failed;
        use Applier::Off;
        use Writers::Clients as Open;
        use Writers::None as Closed;
        use Writers::Stuck;
        use Writers::Unknown;
        let now = Instant::now();
        let serving = Leading::Serving(TERM);
        let elsewhere = Leading::Elsewhere(MemberId(4));
        let silent = Leading::Silent(Duration::from_secs(100));
        let no = Leading::No(Duration::from_secs(100));
        let (ready, earlier) = (Readiness::In(TERM), Readiness::In(Term(2)));
        let (lacks, applying) = (Readiness::Lacks, Readiness::Applying);
        let unknown = Readiness::Unknown;
        let failed = Failed(now + Duration::from_secs(1));
        let may_try = Failed(now);
        let asking = |for_term| Applier::Asking { on: 1, for_term };
        let table = [
            // A server compared by this leader needs no action. A server that was not compared in this term and start is compared.
            (serving, Open, Some(1), Off, ready, Some((1, TERM)), Stay),
            (serving, Closed, Some(1), Off, ready, Some((1, TERM)), Stay),
            (serving, Open, Some(1), Off, unknown, None, Compare(TERM)),
            (
                serving,
                Closed,
                Some(1),
                Off,
                earlier,
                Some((1, TERM)),
                Compare(TERM),
            ),
            (
                serving,
                Closed,
                Some(2),
                Off,
                ready,
                Some((1, TERM)),
                Compare(TERM),
            ),
            (
                serving,
                Closed,
                Some(2),
                Off,
                lacks,
                Some((1, TERM)),
                Compare(TERM),
            ),
            (serving, Open, Some(1), Off, Readiness::Always, None, Stay),
            // The server catches up if clients cannot write.
            (
                serving,
                Closed,
                Some(1),
                Off,
                lacks,
                Some((1, TERM)),
                Follow,
            ),
            (serving, Open, Some(1), Off, lacks, Some((1, TERM)), Stay),
            // An applier that failed in an earlier leadership does not prevent a comparison.
            (serving, Closed, Some(1), failed, lacks, None, Compare(TERM)),
            (
                serving,
                Closed,
                Some(1),
                Off,
                lacks,
                Some((1, Term(2))),
                Compare(TERM),
            ),
            (
                serving,
                Closed,
                Some(1),
                failed,
                lacks,
                Some((1, TERM)),
                Stay,
            ),
            // Commits in a server that lacks transactions would wait indefinitely.
            (
                serving,
                Stuck,
                Some(1),
                Off,
                lacks,
                Some((1, TERM)),
                RESTART,
            ),
            (serving, Stuck, Some(1), Off, lacks, None, Compare(TERM)),
            (serving, Stuck, Some(1), Off, applying, None, RESTART),
            (serving, Stuck, Some(1), Off, ready, Some((1, TERM)), Stay),
            (
                serving,
                Closed,
                Some(1),
                Applying(1),
                applying,
                Some((1, TERM)),
                Finish(TERM),
            ),
            (
                serving,
                Closed,
                Some(2),
                Applying(1),
                applying,
                Some((1, TERM)),
                EndApplier,
            ),
            (
                serving,
                Closed,
                Some(1),
                asking(Some(TERM)),
                applying,
                None,
                Finish(TERM),
            ),
            (
                serving,
                Closed,
                Some(1),
                asking(None),
                applying,
                None,
                EndApplier,
            ),
            (
                serving,
                Closed,
                Some(1),
                asking(Some(Term(2))),
                applying,
                None,
                EndApplier,
            ),
            (
                serving,
                Closed,
                Some(2),
                asking(Some(TERM)),
                applying,
                None,
                EndApplier,
            ),
            // While another member leads, the server follows once no client can write.
            (
                elsewhere,
                Closed,
                Some(1),
                Off,
                earlier,
                Some((1, TERM)),
                Follow,
            ),
            (
                elsewhere,
                Open,
                Some(1),
                Off,
                earlier,
                Some((1, TERM)),
                Stay,
            ),
            (elsewhere, Unknown, Some(1), Off, unknown, None, Stay),
            (
                elsewhere,
                Closed,
                Some(1),
                Applying(1),
                applying,
                None,
                Stay,
            ),
            (
                elsewhere,
                Closed,
                Some(1),
                asking(None),
                applying,
                None,
                Stay,
            ),
            (
                no,
                Closed,
                Some(1),
                asking(Some(TERM)),
                applying,
                None,
                Stay,
            ),
            (
                elsewhere,
                Closed,
                Some(2),
                Applying(1),
                applying,
                None,
                EndApplier,
            ),
            (elsewhere, Closed, Some(1), failed, unknown, None, Stay),
            (elsewhere, Closed, Some(1), may_try, unknown, None, Follow),
            (
                elsewhere,
                Stuck,
                Some(1),
                Off,
                earlier,
                Some((1, TERM)),
                RESTART,
            ),
            (no, Closed, Some(1), Off, unknown, None, Follow),
            (no, Open, Some(1), Off, ready, Some((1, TERM)), Stay),
            // Waiting commits may still be acknowledged when no other member leads.
            (no, Stuck, Some(1), Off, ready, Some((1, TERM)), Stay),
            (silent, Stuck, Some(1), Off, ready, Some((1, TERM)), Stay),
            (silent, Closed, Some(1), Off, ready, Some((1, TERM)), Stay),
            (
                silent,
                Closed,
                Some(1),
                Applying(1),
                applying,
                Some((1, TERM)),
                Stay,
            ),
            // No action is possible on an unreachable server.
            (elsewhere, Closed, None, Off, unknown, None, Stay),
            (elsewhere, Stuck, None, Off, unknown, None, Stay),
            (serving, Closed, None, Off, unknown, None, Stay),
        ];
        for (leading, writers, server, applier, readiness, found_in, expected) in table {
            let facts = Facts {
                applier,
                readiness,
                found_in,
                ..facts(leading, writers, server)
            };
            assert_eq!(decide(&facts, now), expected, "{facts:?}");
            let attached = Facts {
                can_restart: false,
                ..facts
            };
            assert_ne!(decide(&attached, now), RESTART, "{attached:?}");
        }
    }

    /// The comparison of a former follower closes it first, and that close waits indefinitely for the commits.
    #[test]
    fn what_has_followed_and_cannot_be_closed_is_killed_before_it_is_compared() {
        use Readiness::{Always, Applying, In, Lacks, Unknown};
        let now = Instant::now();
        let serving = Leading::Serving(TERM);
        for (readiness, found_in, followed, expected) in [
            // An applier has given up, because it would have released waiting commits.
            (Lacks, None, true, Action::Kill(Kill::Stuck)),
            // The member has restarted since.
            (Unknown, None, true, Action::Kill(Kill::Stuck)),
            (Applying, None, true, Action::Kill(Kill::Stuck)),
            // A comparison that closes nothing finds out whether the ring can acknowledge the commits.
            (Lacks, None, false, Action::Compare(TERM)),
            (Unknown, None, false, Action::Compare(TERM)),
            (In(TERM), Some((1, TERM)), true, Action::Stay),
            (Always, None, false, Action::Stay),
        ] {
            let with = |read_only| Facts {
                readiness,
                found_in,
                followed,
                server: Some(ServerView {
                    incarnation: 1,
                    read_only,
                    offline: false,
                }),
                ..facts(serving, Writers::Stuck, Some(1))
            };
            let stuck = with(ReadOnly::Off);
            assert_eq!(decide(&stuck, now), expected, "{stuck:?}");
            // A backup's lock prevents `super_read_only` on a follower.
            let locked = with(ReadOnly::Clients);
            if matches!(readiness, Lacks | Unknown) {
                assert_eq!(decide(&locked, now), Action::Compare(TERM), "{locked:?}");
            }
            let closed = Facts {
                write_fence: WriteFenceState::Closed { why: String::new() },
                ..stuck
            };
            assert_ne!(decide(&closed, now), Action::Kill(Kill::Stuck));
        }
    }

    /// Checks every combination of facts: the applier never starts while clients can write or may wait for an ACK.
    #[test]
    fn the_applier_starts_only_where_clients_cannot_write() {
        let now = Instant::now();
        let leadings = [
            Leading::Serving(TERM),
            Leading::Elsewhere(MemberId(4)),
            Leading::No(Duration::ZERO),
            Leading::Silent(Duration::ZERO),
        ];
        let all = [Writers::Unknown, Writers::Clients, Writers::Stuck];
        let readiness = [Readiness::Unknown, Readiness::Lacks, Readiness::In(TERM)];
        for leading in leadings {
            for writers in all {
                for readiness in readiness {
                    for applier in [Applier::Off, Applier::Failed(now)] {
                        let facts = Facts {
                            applier,
                            readiness,
                            found_in: Some((1, TERM)),
                            locked_out: Some(LONG),
                            ..facts(leading, writers, Some(1))
                        };
                        assert_ne!(decide(&facts, now), Action::Follow, "{facts:?}");
                    }
                }
            }
        }
    }

    /// Checks every combination of facts: while the data are replaced, nothing is applied, compared, opened or killed.
    #[test]
    fn a_server_whose_data_are_replaced_is_left_alone() {
        let now = Instant::now();
        let asking = Applier::Asking {
            on: 1,
            for_term: Some(TERM),
        };
        let leadings = [
            Leading::Serving(TERM),
            Leading::Elsewhere(MemberId(4)),
            Leading::No(Duration::ZERO),
        ];
        for leading in leadings {
            for writers in [
                Writers::Unknown,
                Writers::Clients,
                Writers::None,
                Writers::Stuck,
            ] {
                for server in [None, Some(1)] {
                    let table = [
                        (
                            Applier::Applying(1),
                            Readiness::Applying,
                            Action::EndApplier,
                        ),
                        (asking, Readiness::Applying, Action::EndApplier),
                        (Applier::Off, Readiness::Lacks, Action::Hold),
                        (Applier::Off, Readiness::In(TERM), Action::Hold),
                        (Applier::Failed(now), Readiness::Lacks, Action::Hold),
                        (Applier::Off, Readiness::Applying, Action::Stay),
                    ];
                    for (applier, readiness, expected) in table {
                        let facts = Facts {
                            applier,
                            readiness,
                            held: true,
                            locked_out: Some(LONG),
                            ..facts(leading, writers, server)
                        };
                        // Waiting commits would keep the server open indefinitely, and none of them was acknowledged.
                        let has_leader =
                            matches!(leading, Leading::Serving(_) | Leading::Elsewhere(_));
                        let expected = match facts.applier {
                            Applier::Off | Applier::Failed(_) if has_leader && is_stuck(&facts) => {
                                Action::Kill(Kill::Stuck)
                            }
                            _ => expected,
                        };
                        assert_eq!(decide(&facts, now), expected, "{facts:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_takes_long_is_broken_off_when_it_is_about_something_that_is_over() {
        let now = Instant::now();
        let serving = Leading::Serving(TERM);
        let next = Leading::Serving(Term(4));
        let (elsewhere, no) = (Leading::Elsewhere(MemberId(4)), Leading::No(LONG));
        for doing in [Action::Compare(TERM), Action::Finish(TERM)] {
            for (leading, held, stopping, expected) in [
                (serving, false, false, Action::Stay),
                (Leading::Silent(LONG), false, false, Action::Stay),
                (next, false, false, Action::BreakOff),
                (elsewhere, false, false, Action::BreakOff),
                (no, false, false, Action::BreakOff),
                (serving, true, false, Action::BreakOff),
                (serving, false, true, Action::BreakOff),
            ] {
                let facts = Facts {
                    applying: Some(doing),
                    held,
                    stopping,
                    ..facts(leading, Writers::None, Some(1))
                };
                assert_eq!(decide(&facts, now), expected, "{facts:?}");
            }
            let locked_out = Facts {
                applying: Some(doing),
                locked_out: Some(LONG),
                ..facts(serving, Writers::Unknown, None)
            };
            let expected = Action::Kill(Kill::LockedOut);
            assert_eq!(decide(&locked_out, now), expected);
        }
        // Short actions are not aborted.
        for doing in [Action::Follow, Action::EndApplier] {
            let facts = Facts {
                applying: Some(doing),
                ..facts(elsewhere, Writers::Stuck, Some(1))
            };
            assert_eq!(decide(&facts, now), Action::Stay);
        }
    }

    #[test]
    fn a_comparison_that_came_to_nothing_is_tried_again_in_a_while() {
        let now = Instant::now();
        let in_a_while = now + Duration::from_millis(250);
        for (failed_in, at, expected) in [
            (TERM, in_a_while, Action::Stay),
            (TERM, now, Action::Compare(TERM)),
            (Term(2), in_a_while, Action::Compare(TERM)),
        ] {
            let facts = Facts {
                compare_not_before: Some((failed_in, at)),
                ..facts(Leading::Serving(TERM), Writers::None, Some(1))
            };
            assert_eq!(decide(&facts, now), expected);
        }
    }
}
