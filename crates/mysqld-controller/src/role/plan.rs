//! What is to be done about the server now, pure.

use std::time::{Duration, Instant};

use crate::gate::GateState;
use crate::leading::Leading;
use crate::ring::LeaderTerm;
use crate::role_status::Readiness;

/// Which start of mysqld, as the watch counts them.
pub type Incarnation = u64;

/// Who can write to the server, as the gate tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Nobody knows.
    Unknown,
    /// Clients can.
    Open,
    /// Clients cannot, and no commit waits.
    Closed,
    /// It is to be closed, and cannot be: commits wait for an ACK that may never come.
    Stuck,
}

impl Door {
    /// What the gate says of the start of mysqld that was looked at last.
    ///
    /// A server that is stuck is killed, so it is taken for stuck only where closing waited behind commits in this very start.
    /// What the gate said of an earlier one stays said until the gate looks again, which may be behind the role's first look at
    /// the new one: believed of that, it would cost a second kill and a second recovery. Nor is a server stuck that could not
    /// be reached. One that really is, is found at the gate's next attempt: it tries until the server is closed.
    pub fn of(gate: &GateState, server: Option<Incarnation>) -> Self {
        match gate {
            GateState::Open => Self::Open,
            GateState::Closed { .. } => Self::Closed,
            GateState::NotClosed { stuck_in, .. } if stuck_in.is_some() && *stuck_in == server => {
                Self::Stuck
            }
            GateState::NotClosed { .. }
            | GateState::Opening
            | GateState::NotOpened { .. }
            | GateState::Unknown => Self::Unknown,
        }
    }
}

/// What the applier does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applier {
    /// It is not at work.
    Off,
    /// It was started, and has changed nothing yet: it waits for the ring to say which transactions are committed.
    Asking {
        /// On this start of mysqld.
        on: Incarnation,
        /// To catch up behind a comparison in this leadership; `None`: while another member led, or nobody.
        for_term: Option<LeaderTerm>,
    },
    /// It is at work on this start of mysqld.
    Applying(Incarnation),
    /// It ended by itself; it is not to be started again before this moment.
    Failed(Instant),
}

impl Applier {
    /// The start of mysqld that it was started on.
    fn on(self) -> Option<Incarnation> {
        match self {
            Self::Asking { on, .. } | Self::Applying(on) => Some(on),
            Self::Off | Self::Failed(_) => None,
        }
    }
}

/// How long a mysqld that lets nobody log in is borne with, before it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockoutPatience {
    /// While another database member leads.
    pub elsewhere: Duration,
    /// While this member leads; `None`: for ever.
    pub leading: Option<Duration>,
}

impl LockoutPatience {
    /// That of a member which gives the leadership away after `mysql.demote_after`, if ever: somebody whose mysqld is fit gets it
    /// before this one is killed.
    pub fn new(give_way_after: Option<Duration>) -> Self {
        let elsewhere = Duration::from_secs(10);
        Self {
            elsewhere,
            leading: give_way_after.map(|patience| patience + elsewhere),
        }
    }
}

/// Everything that the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// What this member is.
    pub leading: Leading,
    /// Who can write.
    pub door: Door,
    /// The start of mysqld that was looked at last; `None` when it cannot be looked at.
    pub server: Option<Incarnation>,
    /// What the applier does.
    pub applier: Applier,
    /// Whether the server may become the primary.
    pub readiness: Readiness,
    /// In which start of mysqld and which leadership that was found, if a comparison found it.
    pub found_in: Option<(Incarnation, LeaderTerm)>,
    /// Whether this member can kill mysqld and start it again.
    pub can_restart: bool,
    /// Whether the server's data are being replaced.
    pub held: bool,
    /// For how long the server has greeted whoever came and let nobody in; `None` where it does, where it cannot be reached, and
    /// while the applier applies.
    pub locked_out: Option<Duration>,
    /// Whether the server's transactions come in, so that what waits in it can be acknowledged.
    pub takes_in: bool,
    /// How long a server that lets nobody in is borne with.
    pub patience: LockoutPatience,
}

impl Situation {
    /// For how long a server that lets nobody in is borne with here; `None`: for ever.
    pub(super) fn borne_with(&self) -> Option<Duration> {
        match self.leading {
            Leading::Elsewhere(_) => Some(self.patience.elsewhere),
            Leading::Serving(_) if !self.takes_in => self.patience.leading,
            Leading::Serving(_) | Leading::Silent(_) | Leading::No(_) => None,
        }
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Compare what the server has with the log at the begin of the leadership.
    Compare(LeaderTerm),
    /// Start the applier.
    Follow,
    /// Wait until everything of the log is applied, end the applier, and make the server fit to be the primary.
    Finish(LeaderTerm),
    /// End the applier: what it writes to is not what it was started on.
    EndApplier,
    /// Keep the applier off, and everybody else too.
    Hold,
    /// Kill mysqld, cut off what the ring has not committed, and start it.
    Restart,
    /// Nothing.
    Stay,
}

/// Decides.
pub fn decide(situation: &Situation, now: Instant) -> Action {
    if situation.held {
        return hold(situation);
    }
    let Some(server) = situation.server else {
        // The applier waits by itself for a server that is away for a moment.
        return unseen(situation);
    };
    if situation.applier.on().is_some_and(|start| start != server) {
        return Action::EndApplier;
    }
    match situation.leading {
        Leading::Serving(term) => lead(situation, server, term, now),
        // Whoever comes next, this member included, finds the server as it is.
        Leading::Silent(_) => Action::Stay,
        Leading::Elsewhere(_) if situation.door == Door::Stuck && situation.can_restart => {
            Action::Restart
        }
        Leading::Elsewhere(_) | Leading::No(_) => follow(situation, now),
    }
}

/// A server that cannot be seen is left alone, but for one that lets nobody log in. In 9.7.4 that is what a statement about
/// accounts does while it waits for its ACK: it holds the lock that every login takes. A member that has no dump then gets none,
/// so that the ACK can never be sent, and sees no commit that waits, so that [`Door::Stuck`] does not come about: nothing but a
/// kill ends it.
///
/// The kill is safe, whatever the reason for which nobody is let in. It is a crash. Nobody was told that what waits in the
/// server is committed: an ACK comes from a leader's dump only, and here another member leads, or this one has no dump. What the
/// ring has committed of it is recovered by the next start, and the rest is cut off before (decision 24), by what the ring says
/// then. While no quorum answers this member, its dump may still run; while nobody is known to lead, nobody says what is
/// committed, which the next start needs: then the server is left alone. A wrong verdict, as on a machine that is held up for the whole patience, costs one recovery of a server that
/// neither takes writes for the ring nor follows it.
fn unseen(situation: &Situation) -> Action {
    let over = match (situation.locked_out, situation.borne_with()) {
        (Some(so_far), Some(patience)) => so_far >= patience,
        _ => false,
    };
    if situation.can_restart && over {
        Action::Restart
    } else {
        Action::Stay
    }
}

/// What is applied is no business of a leadership either: the data are half of something.
fn hold(situation: &Situation) -> Action {
    match (situation.applier, situation.readiness) {
        (Applier::Asking { .. } | Applier::Applying(_), _) => Action::EndApplier,
        // As while the applier is at work: nobody but administrators writes, and nothing opens.
        (_, Readiness::Applying) => Action::Stay,
        _ => Action::Hold,
    }
}

fn lead(situation: &Situation, server: Incarnation, term: LeaderTerm, now: Instant) -> Action {
    match situation.applier {
        Applier::Applying(_) => return Action::Finish(term),
        Applier::Asking { for_term, .. } if for_term == Some(term) => return Action::Finish(term),
        // It knows nothing of what the server has in this leadership.
        Applier::Asking { .. } => return Action::EndApplier,
        Applier::Off | Applier::Failed(_) => {}
    }
    let found_now = situation.found_in == Some((server, term));
    if situation.readiness.allows(term) && found_now {
        return Action::Stay;
    }
    match situation.readiness {
        Readiness::Always => Action::Stay,
        // What it lacks may be what waits there: taken over by the ring, and not acknowledged before this member ended. No
        // ACK comes from a ring whose leader does not take it for the primary, and nothing is applied while commits wait. Its
        // recovery commits what the ring has.
        Readiness::Lacks if found_now && situation.door == Door::Stuck && situation.can_restart => {
            Action::Restart
        }
        // Only when it was compared in this leadership: that the applier failed before says nothing of what the server has.
        Readiness::Lacks if found_now => follow(situation, now),
        _ => Action::Compare(term),
    }
}

fn follow(situation: &Situation, now: Instant) -> Action {
    match situation.applier {
        Applier::Asking { .. } | Applier::Applying(_) => Action::Stay,
        Applier::Failed(not_before) if now < not_before => Action::Stay,
        Applier::Off | Applier::Failed(_) if situation.door == Door::Closed => Action::Follow,
        Applier::Off | Applier::Failed(_) => Action::Stay,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use raft_types::MemberId;

    use super::*;

    const TERM: LeaderTerm = LeaderTerm(3);
    const PATIENCE: LockoutPatience = LockoutPatience {
        elsewhere: Duration::from_secs(10),
        leading: Some(Duration::from_secs(40)),
    };
    const LONG: Duration = Duration::from_secs(1000);

    #[test]
    fn a_server_that_lets_nobody_in_is_killed_where_nothing_else_helps() {
        use Action::Restart;
        use Action::Stay;
        let serving = Leading::Serving(TERM);
        let elsewhere = Leading::Elsewhere(MemberId(4));
        let (silent, no) = (Leading::Silent(LONG), Leading::No(LONG));
        let table = [
            (elsewhere, Some(10), false, Restart),
            (elsewhere, Some(9), false, Stay),
            // It cannot be reached, or answers: it starts, or was stopped, or is seen.
            (elsewhere, None, false, Stay),
            // The leadership goes to somebody else first, if there is somebody.
            (serving, Some(39), false, Stay),
            (serving, Some(40), false, Restart),
            // Its dump runs: the ACK that the statement waits for can come.
            (serving, Some(1000), true, Stay),
            (serving, None, false, Stay),
            // Whoever leads next may attach, and acknowledge.
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
                let situation = Situation {
                    leading,
                    door: Door::Unknown,
                    server: None,
                    applier,
                    readiness: Readiness::Unknown,
                    found_in: None,
                    can_restart: true,
                    held: false,
                    locked_out: seconds.map(Duration::from_secs),
                    takes_in,
                    patience: PATIENCE,
                };
                assert_eq!(decide(&situation, now), expected, "{situation:?}");
                let ours_to_leave_alone = [
                    Situation {
                        can_restart: false,
                        ..situation
                    },
                    Situation {
                        held: true,
                        ..situation
                    },
                ];
                for situation in ours_to_leave_alone {
                    assert_ne!(decide(&situation, now), Restart, "{situation:?}");
                }
                let patient = Situation {
                    patience: LockoutPatience {
                        leading: None,
                        ..PATIENCE
                    },
                    ..situation
                };
                if leading == serving {
                    assert_eq!(decide(&patient, now), Stay, "{patient:?}");
                }
            }
        }
    }

    /// What the gate says, which start is looked at, and what is done at a member beside which another one leads.
    #[test]
    fn a_server_is_killed_only_where_commits_wait_in_the_start_that_is_looked_at() {
        use Action::Follow;
        use Action::Restart;
        use Action::Stay;
        let not_closed = |stuck_in| GateState::NotClosed {
            why: "member 4 leads".to_owned(),
            cause: "in words".to_owned(),
            stuck_in,
        };
        let closed = GateState::Closed { why: String::new() };
        let not_opened = GateState::NotOpened {
            cause: String::new(),
        };
        let table = [
            (not_closed(Some(1)), Some(1), Door::Stuck, Restart),
            // It was killed and started, and the gate has not said anything of the new start.
            (not_closed(Some(1)), Some(2), Door::Unknown, Stay),
            // It was down when the gate tried.
            (not_closed(None), Some(2), Door::Unknown, Stay),
            (not_closed(None), Some(1), Door::Unknown, Stay),
            // The new start is stuck as well, in the same words.
            (not_closed(Some(2)), Some(2), Door::Stuck, Restart),
            (not_closed(Some(1)), None, Door::Unknown, Stay),
            (not_closed(None), None, Door::Unknown, Stay),
            (closed, Some(1), Door::Closed, Follow),
            (GateState::Open, Some(1), Door::Open, Stay),
            (not_opened, Some(1), Door::Unknown, Stay),
            (GateState::Unknown, Some(1), Door::Unknown, Stay),
        ];
        for (gate, server, door, expected) in table {
            assert_eq!(Door::of(&gate, server), door, "{gate:?} {server:?}");
            let situation = Situation {
                leading: Leading::Elsewhere(MemberId(4)),
                door,
                server,
                applier: Applier::Off,
                readiness: Readiness::Unknown,
                found_in: None,
                can_restart: true,
                held: false,
                locked_out: None,
                takes_in: false,
                patience: PATIENCE,
            };
            let action = decide(&situation, Instant::now());
            assert_eq!(action, expected, "{gate:?} {server:?}");
        }
    }

    #[test]
    fn what_to_do() {
        use Action::Compare;
        use Action::EndApplier;
        use Action::Finish;
        use Action::Follow;
        use Action::Restart;
        use Action::Stay;
        use Applier::Applying;
        use Applier::Failed;
        use Applier::Off;
        use Door::Closed;
        use Door::Open;
        use Door::Stuck;
        use Door::Unknown;
        let now = Instant::now();
        let serving = Leading::Serving(TERM);
        let elsewhere = Leading::Elsewhere(MemberId(4));
        let silent = Leading::Silent(Duration::from_secs(100));
        let no = Leading::No(Duration::from_secs(100));
        let (ready, earlier) = (Readiness::In(TERM), Readiness::In(LeaderTerm(2)));
        let (lacks, applying) = (Readiness::Lacks, Readiness::Applying);
        let unknown = Readiness::Unknown;
        let failed = Failed(now + Duration::from_secs(1));
        let may_try = Failed(now);
        let asking = |for_term| Applier::Asking { on: 1, for_term };
        let table = [
            // A leader that was compared stays; one that was not, in this term or start, is compared.
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
            // It catches up behind a closed door only.
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
            // An applier that failed in an earlier leadership does not keep a server from being compared.
            (serving, Closed, Some(1), failed, lacks, None, Compare(TERM)),
            (
                serving,
                Closed,
                Some(1),
                Off,
                lacks,
                Some((1, LeaderTerm(2))),
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
            // What waits in a server that lacks something would wait for ever.
            (
                serving,
                Stuck,
                Some(1),
                Off,
                lacks,
                Some((1, TERM)),
                Restart,
            ),
            (serving, Stuck, Some(1), Off, lacks, None, Compare(TERM)),
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
                asking(Some(LeaderTerm(2))),
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
            // Elsewhere it follows, once nobody can write.
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
                Restart,
            ),
            (no, Closed, Some(1), Off, unknown, None, Follow),
            (no, Open, Some(1), Off, ready, Some((1, TERM)), Stay),
            // What waits may still be acknowledged when nobody else leads.
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
            // Nothing is done to a server that cannot be seen.
            (elsewhere, Closed, None, Off, unknown, None, Stay),
            (elsewhere, Stuck, None, Off, unknown, None, Stay),
            (serving, Closed, None, Off, unknown, None, Stay),
        ];
        for (leading, door, server, applier, readiness, found_in, expected) in table {
            let situation = Situation {
                leading,
                door,
                server,
                applier,
                readiness,
                found_in,
                can_restart: true,
                held: false,
                locked_out: None,
                takes_in: false,
                patience: PATIENCE,
            };
            assert_eq!(decide(&situation, now), expected, "{situation:?}");
            let attached = Situation {
                can_restart: false,
                ..situation
            };
            assert_ne!(decide(&attached, now), Restart, "{attached:?}");
        }
    }

    /// Whatever is seen: the applier is never started while clients can write, or may wait for an ACK.
    #[test]
    fn the_applier_starts_behind_a_closed_door_only() {
        let now = Instant::now();
        let leadings = [
            Leading::Serving(TERM),
            Leading::Elsewhere(MemberId(4)),
            Leading::No(Duration::ZERO),
            Leading::Silent(Duration::ZERO),
        ];
        let doors = [Door::Unknown, Door::Open, Door::Stuck];
        let readiness = [Readiness::Unknown, Readiness::Lacks, Readiness::In(TERM)];
        for leading in leadings {
            for door in doors {
                for readiness in readiness {
                    for applier in [Applier::Off, Applier::Failed(now)] {
                        let situation = Situation {
                            leading,
                            door,
                            server: Some(1),
                            applier,
                            readiness,
                            found_in: Some((1, TERM)),
                            can_restart: true,
                            held: false,
                            locked_out: Some(LONG),
                            takes_in: false,
                            patience: PATIENCE,
                        };
                        assert_ne!(decide(&situation, now), Action::Follow, "{situation:?}");
                    }
                }
            }
        }
    }

    /// Whatever is seen: while the data are replaced nothing is applied, compared, opened or killed.
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
            for door in [Door::Unknown, Door::Open, Door::Closed, Door::Stuck] {
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
                        let situation = Situation {
                            leading,
                            door,
                            server,
                            applier,
                            readiness,
                            found_in: None,
                            can_restart: true,
                            held: true,
                            locked_out: Some(LONG),
                            takes_in: false,
                            patience: PATIENCE,
                        };
                        assert_eq!(decide(&situation, now), expected, "{situation:?}");
                    }
                }
            }
        }
    }
}
