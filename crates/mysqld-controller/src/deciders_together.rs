//! What the gate and the role decide, each by itself, carried out side by side on a model of mysqld: in any order, each in the
//! steps between which the other one may act, while the leadership comes and goes and mysqld starts anew.
//!
//! Whatever happens, no client can commit while commits wait for nobody; and once the ring rests, so does mysqld: open for a
//! leader, following for anybody else.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use raft_types::MemberId;

use crate::gate::{
    CloseReason, GateAction, GateInputs, GateMemory, GateState, GateView, StayReason,
    decide as decide_gate,
};
use crate::leading::Leading;
use crate::ring::LeaderTerm;
use crate::role::plan::{
    Action, Applier, Door, Incarnation, LockoutPatience, Situation, decide as decide_role,
};
use crate::role_status::Readiness;
use crate::watch::{Protection, ReadOnly};

/// Who does one step, or what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Gate,
    /// What the gate does to mysqld waits behind commits and comes to nothing.
    GateFails,
    Role,
    Applier,
    Ingest,
    Watch,
    /// The applier has applied everything that it has.
    CatchesUp,
    Serves,
    AnotherLeads,
    NobodyLeads,
    /// The primary beside another member commits something.
    OthersCommit,
    MysqldStartsAnew,
}

/// Between two events everybody has a few turns.
fn turns() -> impl Strategy<Value = Turn> {
    prop_oneof![
        6 => Just(Turn::Gate),
        6 => Just(Turn::Role),
        6 => Just(Turn::Applier),
        4 => Just(Turn::Ingest),
        4 => Just(Turn::Watch),
        2 => Just(Turn::CatchesUp),
        1 => Just(Turn::GateFails),
        1 => Just(Turn::Serves),
        1 => Just(Turn::AnotherLeads),
        1 => prop_oneof![
            Just(Turn::NobodyLeads),
            Just(Turn::OthersCommit),
            Just(Turn::MysqldStartsAnew),
        ],
    ]
}

/// mysqld itself.
#[derive(Debug, Clone, Copy)]
struct Mysqld {
    start: Incarnation,
    read_only: ReadOnly,
    /// Commits wait for the ring.
    waits: bool,
    /// It lacks something of the ring's log.
    lacks: bool,
}

#[derive(Debug, Clone, Copy)]
enum GateStep {
    Decides,
    /// It has said so, and asks mysqld how it is configured.
    Opens(LeaderTerm),
    /// It has looked at the leadership again; its statement is on the way.
    OpensNow(LeaderTerm),
    Closes,
}

#[derive(Debug, Clone, Copy)]
enum RoleStep {
    Looks,
    /// It has looked at the ring, and not yet at the rest.
    Decides(Leading),
    Compares(LeaderTerm, Option<Incarnation>),
}

/// How far an applier is that was started.
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
    /// What the watch saw, and when.
    report: Option<(Mysqld, u64)>,
    /// The leadership in which ingest is attached, and since when; and in which it may.
    attached: Option<(LeaderTerm, u64)>,
    may_attach_in: Option<LeaderTerm>,
    gate: GateStep,
    door: GateState,
    memory: GateMemory,
    moved: Option<(ReadOnly, u64)>,
    role: RoleStep,
    readiness: Readiness,
    found_in: Option<(Incarnation, LeaderTerm)>,
    followed: bool,
    applier: Option<(Incarnation, Option<LeaderTerm>, ApplierStep)>,
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
            gate: GateStep::Decides,
            door: GateState::Unknown,
            memory: GateMemory::default(),
            moved: None,
            role: RoleStep::Looks,
            readiness: Readiness::Unknown,
            found_in: None,
            followed: false,
            applier: None,
        }
    }

    fn turn(&mut self, turn: Turn) {
        self.now += 1;
        match turn {
            Turn::Gate => self.gate(true),
            Turn::GateFails => self.gate(false),
            Turn::Role => self.role(),
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
                self.leading = Leading::Serving(LeaderTerm(self.term));
            }
            Turn::AnotherLeads => self.leading = Leading::Elsewhere(MemberId(4)),
            Turn::NobodyLeads => self.leading = Leading::No(LONG),
            Turn::OthersCommit => {
                self.mysqld.lacks |= matches!(self.leading, Leading::Elsewhere(_));
            }
            // Its statement takes less time than a start.
            Turn::MysqldStartsAnew if matches!(self.gate, GateStep::OpensNow(_)) => {}
            Turn::MysqldStartsAnew => self.start_anew(),
        }
        let Mysqld {
            read_only, waits, ..
        } = self.mysqld;
        assert!(
            read_only != ReadOnly::Off || waits,
            "a client's commit waits for nobody: {self:#?}"
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

    /// As `Gate::view`.
    fn view(&self) -> Option<GateView> {
        let (seen, looked_at) = self.report?;
        Some(GateView {
            read_only: match self.moved {
                Some((read_only, at)) if at >= looked_at => read_only,
                _ => seen.read_only,
            },
            incarnation: seen.start,
        })
    }

    fn gate(&mut self, succeeds: bool) {
        match self.gate {
            GateStep::Decides => {
                let looked_at = self.report.map_or(0, |(_, at)| at);
                let protection = self.protection();
                let inputs = GateInputs {
                    leading: self.leading,
                    // As `gate::is_attached_and_looked_at`.
                    attached: self.attached.is_some_and(|(term, since)| {
                        self.leading == Leading::Serving(term) && looked_at >= since
                    }),
                    readiness: self.readiness,
                    protection: &protection,
                    server: self.view(),
                    handing_over: false,
                    patience: LONG,
                };
                match decide_gate(&inputs, &self.memory) {
                    GateAction::Open(term) => {
                        self.door = GateState::Opening;
                        self.gate = GateStep::Opens(term);
                    }
                    GateAction::Close(_) => self.gate = GateStep::Closes,
                    GateAction::Stay(StayReason::Open) => self.door = GateState::Open,
                    GateAction::Stay(StayReason::Unknown) => self.door = GateState::Unknown,
                    GateAction::Stay(_) => self.door = closed(),
                }
            }
            GateStep::Opens(term) => {
                // As `Gate::may_still_open`.
                let may = self.leading == Leading::Serving(term) && self.readiness.allows(term);
                self.gate = match may {
                    true => GateStep::OpensNow(term),
                    false => GateStep::Decides,
                };
                if !may {
                    self.door = GateState::Unknown;
                }
            }
            GateStep::OpensNow(term) => {
                self.mysqld.read_only = ReadOnly::Off;
                self.memory = GateMemory {
                    opened: self.view().map(|view| (term, view.incarnation)),
                    closed_by_us: false,
                };
                self.moved = Some((ReadOnly::Off, self.now));
                self.door = GateState::Open;
                self.gate = GateStep::Decides;
            }
            GateStep::Closes if succeeds => {
                self.mysqld.read_only = ReadOnly::Everybody;
                self.memory.closed_by_us = true;
                self.moved = Some((ReadOnly::Everybody, self.now));
                self.door = closed();
                self.gate = GateStep::Decides;
            }
            GateStep::Closes => {
                let before = self.view();
                self.moved = before.map(|view| (view.read_only, self.now));
                self.door = GateState::NotClosed {
                    why: String::new(),
                    cause: String::new(),
                    stuck_in: before.map(|view| view.incarnation),
                };
                self.gate = GateStep::Decides;
            }
        }
    }

    /// As `Role::run`.
    fn role(&mut self) {
        match self.role {
            RoleStep::Looks => self.role = RoleStep::Decides(self.leading),
            RoleStep::Decides(leading) => {
                self.role = RoleStep::Looks;
                self.decide(leading);
            }
            RoleStep::Compares(term, server) => {
                self.role = RoleStep::Looks;
                self.compare(term, server);
            }
        }
    }

    fn decide(&mut self, leading: Leading) {
        let server = self.report.map(|(seen, _)| seen.start);
        let situation = Situation {
            leading,
            door: Door::of(&self.door, server),
            server,
            applier: match self.applier {
                None => Applier::Off,
                Some((on, for_term, ApplierStep::Asks)) => Applier::Asking { on, for_term },
                Some((on, ..)) => Applier::Applying(on),
            },
            readiness: self.readiness,
            found_in: self.found_in,
            can_restart: true,
            held: false,
            locked_out: None,
            takes_in: self.attached.is_some(),
            patience: LockoutPatience::new(None),
        };
        match decide_role(&situation, self.began) {
            Action::Stay | Action::Hold => {}
            Action::Compare(term) => self.role = RoleStep::Compares(term, server),
            Action::Follow => {
                let for_term = match leading {
                    Leading::Serving(term) => Some(term),
                    _ => None,
                };
                self.applier = server.map(|server| (server, for_term, ApplierStep::Asks));
                self.set(Readiness::Applying, None);
            }
            Action::Finish(term) => {
                let applies = matches!(self.applier, Some((.., ApplierStep::Applies)));
                if self.leading == Leading::Serving(term) && applies && !self.mysqld.lacks {
                    self.end_applier();
                    self.role = RoleStep::Compares(term, server);
                }
            }
            Action::EndApplier => self.end_applier(),
            Action::Restart => self.start_anew(),
        }
    }

    fn compare(&mut self, term: LeaderTerm, server: Option<Incarnation>) {
        if self.leading != Leading::Serving(term) {
            return;
        }
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

    fn set(&mut self, readiness: Readiness, found_in: Option<(Incarnation, LeaderTerm)>) {
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
            // The ring says what is committed once somebody leads.
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
            // It cannot go on at a server that was closed to everybody meanwhile.
            ApplierStep::Applies if self.mysqld.read_only == ReadOnly::Everybody => {
                return self.end_applier();
            }
            ApplierStep::Applies => ApplierStep::Applies,
        };
        self.applier = Some((on, for_term, next));
    }

    /// A leadership in which it may attach stays one, whatever is found later.
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

    /// Everybody in turn, while the ring rests.
    fn settle(&mut self) {
        for _ in 0..40 {
            for turn in [
                Turn::Watch,
                Turn::Gate,
                Turn::Role,
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

fn closed() -> GateState {
    GateState::Closed {
        why: CloseReason::NotLeader.to_string(),
    }
}

/// Each was found by the test below, or by reading.
#[test]
fn courses_that_went_wrong_once() {
    use Turn::{AnotherLeads, Applier, Gate, Ingest, Role, Serves, Watch};
    let may_open = [Watch, Gate, Serves, Role, Role, Role, Ingest, Watch];
    let follows = [Role, Role, Applier, Applier, Applier];
    let courses = [
        // The role looks whether the server is closed before the gate says that it opens it, and at the ring behind the gate.
        [
            &may_open[..],
            &[Role, Gate, Gate, AnotherLeads],
            &follows[1..],
            &[Gate],
        ]
        .concat(),
        // It follows for a moment, and neither ingest nor the watch has noticed when the leadership is back.
        [
            &may_open[..],
            &[AnotherLeads],
            &follows,
            &[Serves, Role, Role, Role, Gate, Gate, Gate],
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
