//! A model of mysqld on which concurrent executors carry out the decisions, in any order and in steps. Between steps, the leadership may
//! change and mysqld may restart.
//!
//! Invariant: no client can commit while no member acknowledges commits. Once the ring is quiet, mysqld reaches its final state: open on a
//! leader, following elsewhere.

use std::time::Duration;

use proptest::prelude::*;
use raft_types::{MemberId, Term};
use tokio::time::Instant;

use crate::plan::decide;
use crate::plan::facts::{
    Applier, ApplyAction, Facts, Incarnation, LockoutPatience, ServerView, WriteMemory,
};
use crate::plan::read_fence::ReadFenceMemory;
use crate::plan::write_fence::{CloseReason, StayReason, WriteAction};
use crate::ring::Leading;
use crate::status::{Readiness, WriteFenceState};
use crate::watch::{Protection, ReadOnly};

/// A step of an actor, or an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The controller observes, decides, and passes the orders on.
    Decides,
    /// The write fence carries out its action.
    Writes,
    /// The write fence's statement waits for commits, and fails.
    WritesFail,
    /// The action on the log is carried out.
    Applies,
    Applier,
    Ingest,
    Watch,
    /// The applier has applied all transactions that it received.
    CatchesUp,
    Serves,
    AnotherLeads,
    NobodyLeads,
    /// The primary of another member commits a transaction.
    OthersCommit,
    MysqldStartsAnew,
}

/// Generates turns. Between two events, every actor usually has a few turns.
fn turns() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => Just(Turn::Decides),
        5 => Just(Turn::Writes),
        5 => Just(Turn::Applies),
        6 => Just(Turn::Applier),
        4 => Just(Turn::Ingest),
        4 => Just(Turn::Watch),
        2 => Just(Turn::CatchesUp),
        1 => Just(Turn::WritesFail),
        1 => Just(Turn::Serves),
        1 => Just(Turn::AnotherLeads),
        1 => prop_oneof![
            Just(Turn::NobodyLeads),
            Just(Turn::OthersCommit),
            Just(Turn::MysqldStartsAnew),
        ],
    ]
}

#[derive(Debug, Clone, Copy)]
struct Mysqld {
    start: Incarnation,
    read_only: ReadOnly,
    /// True if commits wait for the ring.
    waits: bool,
    /// True if the server lacks part of the ring's log.
    lacks: bool,
}

/// An action of the write fence in progress.
#[derive(Debug, Clone, Copy)]
enum Writing {
    Prepares(Term, Incarnation),
    Opens(Term, Incarnation),
    TakesOverOpen(Term, Incarnation),
    Closes(ServerView),
}

/// An action on the log in progress.
#[derive(Debug, Clone, Copy)]
struct Applying {
    action: ApplyAction,
    server: Option<Incarnation>,
    leading: Leading,
    broken_off: bool,
}

/// Progress of a started applier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApplierStep {
    Asks,
    Begins,
    LetsCommitsThrough,
    Applies,
}

#[derive(Debug)]
struct World {
    now: u64,
    began: Instant,
    term: u64,
    leading: Leading,
    mysqld: Mysqld,
    /// The watcher's last report, and its time.
    report: Option<(Mysqld, u64)>,
    /// The leadership in which ingest is attached, and since when; and the leadership in which ingest may attach.
    attached: Option<(Term, u64)>,
    may_attach_in: Option<Term>,
    writing: Option<Writing>,
    write_fence: WriteFenceState,
    memory: WriteMemory,
    moved: Option<(ReadOnly, u64)>,
    readers: ReadFenceMemory,
    applying: Option<Applying>,
    readiness: Readiness,
    found_in: Option<(Incarnation, Term)>,
    followed: bool,
    applier: Option<(Incarnation, Option<Term>, ApplierStep)>,
}

impl World {
    fn new() -> Self {
        Self {
            now: 0,
            began: Instant::now(),
            term: 0,
            leading: Leading::No(LONG),
            mysqld: Mysqld {
                start: 1,
                read_only: ReadOnly::Everybody,
                waits: true,
                lacks: false,
            },
            report: None,
            attached: None,
            may_attach_in: None,
            writing: None,
            write_fence: WriteFenceState::Unknown,
            memory: WriteMemory::default(),
            moved: None,
            readers: ReadFenceMemory::default(),
            applying: None,
            readiness: Readiness::Unknown,
            found_in: None,
            followed: false,
            applier: None,
        }
    }

    fn turn(&mut self, turn: Turn) {
        self.now += 1;
        match turn {
            Turn::Decides => self.decide(),
            Turn::Writes => self.write(true),
            Turn::WritesFail => self.write(false),
            Turn::Applies => self.apply(),
            Turn::Applier => self.applier(),
            Turn::Ingest => self.ingest(),
            Turn::Watch => self.report = Some((self.mysqld, self.now)),
            Turn::CatchesUp => {
                let applies = matches!(self.applier, Some((on, _, ApplierStep::Applies)) if on == self.mysqld.start);
                if applies && self.mysqld.read_only == ReadOnly::Clients {
                    self.mysqld.lacks = false;
                }
            }
            Turn::Serves => {
                self.term += 1;
                self.leading = Leading::Serving(Term(self.term));
            }
            Turn::AnotherLeads => self.leading = Leading::Elsewhere(MemberId(4)),
            Turn::NobodyLeads => self.leading = Leading::No(LONG),
            Turn::OthersCommit => {
                self.mysqld.lacks |= matches!(self.leading, Leading::Elsewhere(_));
            }
            // The opening statement takes less time than a start of mysqld.
            Turn::MysqldStartsAnew if matches!(self.writing, Some(Writing::Opens(..))) => {}
            Turn::MysqldStartsAnew => self.start_anew(),
        }
        let Mysqld {
            read_only, waits, ..
        } = self.mysqld;
        assert!(
            read_only != ReadOnly::Off || waits,
            "a client's commit waits for no member: {self:#?}"
        );
    }

    fn start_anew(&mut self) {
        self.mysqld = Mysqld {
            start: self.mysqld.start + 1,
            read_only: ReadOnly::Everybody,
            waits: true,
            ..self.mysqld
        };
        self.attached = None;
    }

    fn protection(&self) -> Protection {
        match self.report {
            None => Protection::Unknown {
                cause: String::new(),
            },
            Some((seen, _)) if seen.waits => Protection::Protected,
            Some(_) => Protection::Unprotected {
                findings: Vec::new(),
            },
        }
    }

    fn facts(&self) -> Facts {
        let looked_at = self.report.map_or(0, |(_, at)| at);
        let server = self.report.map(|(seen, _)| ServerView {
            incarnation: seen.start,
            read_only: match self.moved {
                Some((read_only, at)) if self.writing.is_none() && at >= looked_at => read_only,
                _ => seen.read_only,
            },
            offline: false,
        });
        Facts {
            leading: self.leading,
            server,
            protection: self.protection(),
            // Uses the same rule as `is_attached_and_looked_at`.
            attached: self.attached.is_some_and(|(term, since)| {
                self.leading == Leading::Serving(term) && looked_at >= since
            }),
            takes_in: self.attached.is_some(),
            can_restart: true,
            readiness: self.readiness,
            found_in: self.found_in,
            followed: self.followed,
            applier: match self.applier {
                None => Applier::Off,
                Some((on, for_term, ApplierStep::Asks)) => Applier::Asking { on, for_term },
                Some((on, ..)) => Applier::Applying(on),
            },
            applying: self.applying.map(|applying| applying.action),
            write_fence: self.write_fence.clone(),
            write_memory: self.writing.is_none().then_some(self.memory),
            ..Facts::unknown(LONG, LockoutPatience::new(None))
        }
    }

    fn decide(&mut self) {
        let facts = self.facts();
        let plan = decide(&facts, &mut self.readers, self.began);
        if plan.kill.is_some() {
            self.start_anew();
        }
        let incarnation = facts.server.map_or(0, |server| server.incarnation);
        match plan.write {
            WriteAction::Prepare(term) => {
                self.write_fence = WriteFenceState::Opening;
                self.writing = Some(Writing::Prepares(term, incarnation));
            }
            WriteAction::Open(term) => self.writing = Some(Writing::Opens(term, incarnation)),
            WriteAction::TakeOverOpen(term) => {
                self.write_fence = WriteFenceState::Open;
                self.writing = Some(Writing::TakesOverOpen(term, incarnation));
            }
            WriteAction::Close(_) => self.writing = facts.server.map(Writing::Closes),
            WriteAction::Stay(reason) => {
                self.memory.prepared = None;
                self.write_fence = match reason {
                    StayReason::Open => WriteFenceState::Open,
                    StayReason::Unknown => WriteFenceState::Unknown,
                    _ => closed(),
                };
            }
            WriteAction::Wait => {}
        }
        match (plan.apply, &mut self.applying) {
            (ApplyAction::Stay, _) => {}
            (ApplyAction::BreakOff, Some(applying)) => applying.broken_off = true,
            (action, applying) => {
                *applying = Some(Applying {
                    action,
                    server: facts.seen(),
                    leading: facts.leading,
                    broken_off: false,
                });
            }
        }
    }

    fn write(&mut self, succeeds: bool) {
        match self.writing.take() {
            None => {}
            Some(Writing::Prepares(term, incarnation)) => {
                self.memory.prepared = Some((term, incarnation));
            }
            Some(Writing::TakesOverOpen(..)) if !succeeds => {}
            Some(Writing::TakesOverOpen(term, incarnation)) => {
                self.memory = WriteMemory {
                    opened: Some((term, incarnation)),
                    ..WriteMemory::default()
                };
            }
            Some(Writing::Opens(term, incarnation)) => {
                self.mysqld.read_only = ReadOnly::Off;
                self.memory = WriteMemory {
                    opened: Some((term, incarnation)),
                    ..WriteMemory::default()
                };
                self.moved = Some((ReadOnly::Off, self.now));
                self.write_fence = WriteFenceState::Open;
            }
            Some(Writing::Closes(_)) if succeeds => {
                self.mysqld.read_only = ReadOnly::Everybody;
                self.memory.closed_by_us = true;
                self.moved = Some((ReadOnly::Everybody, self.now));
                self.write_fence = closed();
            }
            Some(Writing::Closes(before)) => {
                self.moved = Some((before.read_only, self.now));
                self.write_fence = WriteFenceState::NotClosed {
                    why: String::new(),
                    cause: String::new(),
                    stuck_in: Some(before.incarnation),
                };
            }
        }
    }

    fn apply(&mut self) {
        let Some(Applying {
            action,
            server,
            leading,
            broken_off,
        }) = self.applying
        else {
            return;
        };
        match action {
            ApplyAction::Compare(term) if !broken_off => self.compare(term, server),
            ApplyAction::Finish(term) if !broken_off => {
                let applies = matches!(self.applier, Some((.., ApplierStep::Applies)));
                match self.applier {
                    // The action keeps waiting.
                    Some(_) if !applies || self.mysqld.lacks => return,
                    Some(_) => {
                        self.end_applier();
                        self.compare(term, server);
                    }
                    None => {}
                }
            }
            ApplyAction::Follow => {
                let for_term = match leading {
                    Leading::Serving(term) => Some(term),
                    _ => None,
                };
                self.applier = server.map(|server| (server, for_term, ApplierStep::Asks));
                self.set(Readiness::Applying, None);
            }
            ApplyAction::EndApplier => self.end_applier(),
            _ => {}
        }
        self.applying = None;
    }

    fn compare(&mut self, term: Term, server: Option<Incarnation>) {
        if self.followed {
            self.mysqld.read_only = ReadOnly::Everybody;
        }
        let found = server.map(|server| (server, term));
        if self.mysqld.lacks {
            self.set(Readiness::Lacks, found);
        } else {
            self.followed = false;
            self.set(Readiness::In(term), found);
        }
    }

    fn set(&mut self, readiness: Readiness, found_in: Option<(Incarnation, Term)>) {
        (self.readiness, self.found_in) = (readiness, found_in);
    }

    fn end_applier(&mut self) {
        if let Some((_, _, step)) = self.applier.take() {
            self.followed |= step != ApplierStep::Asks;
            self.set(Readiness::Lacks, None);
        }
    }

    fn applier(&mut self) {
        let Some((on, for_term, step)) = self.applier else {
            return;
        };
        if on != self.mysqld.start {
            return self.end_applier();
        }
        let next = match step {
            // The ring reports which transactions are committed once a leader serves.
            ApplierStep::Asks if matches!(self.leading, Leading::No(_)) => ApplierStep::Asks,
            ApplierStep::Asks => ApplierStep::Begins,
            ApplierStep::Begins => {
                self.mysqld.waits = false;
                ApplierStep::LetsCommitsThrough
            }
            ApplierStep::LetsCommitsThrough => {
                self.mysqld.read_only = ReadOnly::Clients;
                ApplierStep::Applies
            }
            // The applier cannot continue on a server that was closed to all accounts in the meantime.
            ApplierStep::Applies if self.mysqld.read_only == ReadOnly::Everybody => {
                return self.end_applier();
            }
            ApplierStep::Applies => ApplierStep::Applies,
        };
        self.applier = Some((on, for_term, next));
    }

    /// Ingest may attach in any leadership in which the readiness once allowed it, whatever is found later.
    fn ingest(&mut self) {
        let Leading::Serving(term) = self.leading else {
            self.attached = None;
            return;
        };
        if self.readiness.allows(term) {
            self.may_attach_in = Some(term);
        }
        if self.may_attach_in != Some(term) || self.mysqld.lacks {
            self.attached = None;
        } else if self.attached.is_none_or(|(attached, _)| attached != term) {
            self.mysqld.waits = true;
            self.attached = Some((term, self.now));
        }
    }

    /// Gives each actor its turn while the ring is quiet.
    fn settle(&mut self) {
        for _ in 0..40 {
            for turn in [
                Turn::Watch,
                Turn::Decides,
                Turn::Writes,
                Turn::Applies,
                Turn::Applier,
                Turn::CatchesUp,
                Turn::Ingest,
            ] {
                self.turn(turn);
            }
        }
    }
}

const LONG: Duration = Duration::from_secs(1000);

fn closed() -> WriteFenceState {
    WriteFenceState::Closed {
        why: CloseReason::NotLeader.to_string(),
    }
}

/// Regressions that the test below or a review found.
#[test]
fn courses_that_went_wrong_once() {
    use Turn::{AnotherLeads, Applier, Applies, Decides, Ingest, Serves, Watch, Writes};
    let may_open = [Watch, Decides, Serves, Decides, Applies, Ingest, Watch];
    let opens = [Decides, Writes, Decides, Writes];
    let follows = [Decides, Applies, Applier, Applier, Applier];
    let courses = [
        // The queries before opening run, and another member takes the leadership.
        [
            &may_open[..],
            &opens[..2],
            &[AnotherLeads],
            &follows,
            &opens,
        ]
        .concat(),
        // The opening statement is being executed.
        [
            &may_open[..],
            &opens[..3],
            &[AnotherLeads],
            &follows,
            &opens,
        ]
        .concat(),
        // The server follows for a short time, and neither ingest nor the watcher has observed that when the leadership returns.
        [
            &may_open[..],
            &[AnotherLeads],
            &follows,
            &[Serves, Decides, Applies, Decides, Applies],
            &opens,
        ]
        .concat(),
    ];
    for course in courses {
        let mut world = World::new();
        for turn in course {
            world.turn(turn);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn they_do_not_undo_each_other(turns in prop::collection::vec(turns(), 0..400)) {
        let mut world = World::new();
        for turn in turns {
            world.turn(turn);
        }
        for rest in [Turn::AnotherLeads, Turn::Serves, Turn::Serves, Turn::NobodyLeads, Turn::AnotherLeads] {
            world.turn(rest);
            world.settle();
            let follows = matches!(world.applier, Some((.., ApplierStep::Applies)));
            let open = world.mysqld.read_only == ReadOnly::Off;
            match rest {
                Turn::Serves => prop_assert!(open && !follows, "it does not open: {world:#?}"),
                Turn::AnotherLeads => prop_assert!(!open && follows, "it does not follow: {world:#?}"),
                _ => prop_assert!(!open, "it is not closed: {world:#?}"),
            }
        }
    }
}
