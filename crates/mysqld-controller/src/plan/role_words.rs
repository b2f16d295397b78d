//! The role reported for a server while no action is due (pure), and its log messages.

use tracing::info;

use crate::plan::facts::{Applier, Facts, Writers};
use crate::ring::Leading;
use crate::status::{Hold, RoleState, WaitingFor};

/// Returns the state to report after `before`. A state that needs an operator is reported until it changes.
pub(crate) fn role_state(facts: &Facts, hold: Option<Hold>, before: &RoleState) -> RoleState {
    let waiting = |what| RoleState::Waiting { what };
    match (facts.applier, hold, facts.leading) {
        (Applier::Applying(_), _, _) => RoleState::Following,
        (Applier::Asking { .. }, _, _) => waiting(WaitingFor::Ring),
        (_, Some(hold), _) => hold.into(),
        (_, None, Leading::Serving(term)) if facts.readiness.allows(term) => RoleState::Primary,
        (_, None, Leading::Silent(_)) if facts.readiness.is_of_a_primary() => RoleState::Primary,
        _ => match before {
            RoleState::Stopped { .. } => before.clone(),
            // The result of an attempt is reported until the next one, which checks all other facts again.
            RoleState::Waiting {
                what: WaitingFor::Step(_),
            } => before.clone(),
            _ if facts.seen().is_none() => waiting(WaitingFor::Answer),
            _ if Writers::of(&facts.write_fence, facts.seen()) != Writers::None => {
                waiting(WaitingFor::Writers)
            }
            _ => RoleState::Unknown,
        },
    }
}

/// Logs a change of the role, so that the log alone shows an operator what mysqld does. The cause of a stop is logged where it is found.
pub(crate) fn log_change(was: &RoleState, now: &RoleState) {
    match now {
        _ if std::mem::discriminant(was) == std::mem::discriminant(now) => {}
        RoleState::Primary => info!("mysqld is the primary of this leadership"),
        RoleState::Following => info!("mysqld follows the ring"),
        RoleState::CatchingUp { lacks } => {
            info!(
                lacks,
                "this member leads, and its mysqld catches up with the log"
            );
        }
        RoleState::Waiting { what } => info!("mysqld does not follow yet: {what}"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use raft_types::{MemberId, Term};
    use tokio::time::Instant;

    use super::*;
    use crate::plan::facts::{LockoutPatience, ServerView};
    use crate::status::{Readiness, WriteFenceState};
    use crate::watch::{Protection, ReadOnly};

    const TERM: Term = Term(3);

    #[test]
    fn what_is_told() {
        use Applier::Applying;
        use Applier::Failed;
        use Applier::Off;
        use RoleState::Following;
        use RoleState::Primary;
        use RoleState::Unknown;
        use Writers::Clients as Open;
        use Writers::None as Closed;
        use Writers::Stuck;
        let serving = Leading::Serving(TERM);
        let elsewhere = Leading::Elsewhere(MemberId(4));
        let (silent, no) = (Leading::Silent(Duration::ZERO), Leading::No(Duration::ZERO));
        let (ready, earlier) = (Readiness::In(TERM), Readiness::In(Term(2)));
        let (lacks, applying) = (Readiness::Lacks, Readiness::Applying);
        let waiting = |what| RoleState::Waiting { what };
        let step = || waiting(WaitingFor::Step("x".to_owned()));
        let asking = Applier::Asking {
            on: 1,
            for_term: None,
        };
        let asks = || waiting(WaitingFor::Ring);
        let stopped = || RoleState::Stopped {
            cause: "errant".to_owned(),
        };
        let catching_up = RoleState::CatchingUp { lacks: 3 };
        let failed = Failed(Instant::now());
        let table = [
            // The applier's state is independent of the leader and of the previous report.
            (
                elsewhere,
                Applying(1),
                applying,
                Closed,
                Some(1),
                stopped(),
                Following,
            ),
            (
                serving,
                Applying(1),
                applying,
                Closed,
                None,
                Unknown,
                Following,
            ),
            (
                elsewhere,
                asking,
                applying,
                Closed,
                Some(1),
                Primary,
                asks(),
            ),
            (serving, Off, ready, Open, Some(1), step(), Primary),
            (serving, Off, ready, Closed, None, stopped(), Primary),
            (
                serving,
                Off,
                Readiness::Always,
                Open,
                Some(1),
                Unknown,
                Primary,
            ),
            // The next leader finds the server unchanged.
            (silent, Off, ready, Open, Some(1), Primary, Primary),
            (silent, Off, lacks, Closed, Some(1), stopped(), stopped()),
            // The reason persists until it changes.
            (serving, Off, lacks, Closed, Some(1), stopped(), stopped()),
            (
                elsewhere,
                failed,
                lacks,
                Closed,
                Some(1),
                stopped(),
                stopped(),
            ),
            (serving, Off, earlier, Closed, Some(1), step(), step()),
            (no, Off, lacks, Open, None, step(), step()),
            (
                elsewhere,
                Off,
                earlier,
                Open,
                None,
                Primary,
                waiting(WaitingFor::Answer),
            ),
            (
                elsewhere,
                Off,
                earlier,
                Open,
                Some(1),
                Primary,
                waiting(WaitingFor::Writers),
            ),
            (
                elsewhere,
                Off,
                lacks,
                Stuck,
                Some(1),
                Following,
                waiting(WaitingFor::Writers),
            ),
            // The server answers again.
            (
                elsewhere,
                Off,
                lacks,
                Stuck,
                Some(1),
                waiting(WaitingFor::Answer),
                waiting(WaitingFor::Writers),
            ),
            (no, Off, lacks, Closed, Some(1), asks(), Unknown),
            (serving, Off, lacks, Closed, Some(1), catching_up, Unknown),
            (no, Off, lacks, Closed, Some(1), Primary, Unknown),
        ];
        for (leading, applier, readiness, writers, server, before, expected) in table {
            let facts = Facts {
                leading,
                server: server.map(|incarnation| ServerView {
                    incarnation,
                    read_only: ReadOnly::Everybody,
                    offline: false,
                }),
                protection: Protection::Protected,
                applier,
                readiness,
                write_fence: match writers {
                    Closed => WriteFenceState::Closed { why: String::new() },
                    Open => WriteFenceState::Open,
                    Stuck | Writers::Unknown => WriteFenceState::Unknown,
                },
                ..Facts::unknown(Duration::ZERO, LockoutPatience::new(None))
            };
            let told = role_state(&facts, None, &before);
            assert_eq!(told, expected, "{facts:?} {before:?}");
            // A replacement of the data is reported after the applier has ended.
            let hold = Hold::Interrupted {
                cause: "half a copy".to_owned(),
            };
            let told = role_state(&facts, Some(hold.clone()), &before);
            let applies = matches!(applier, Applying(_) | Applier::Asking { .. });
            let held = if applies { expected } else { hold.into() };
            assert_eq!(told, held, "{facts:?} {before:?}");
        }
    }
}
