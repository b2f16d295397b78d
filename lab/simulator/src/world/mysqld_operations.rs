//! [`Scenario::MysqldOperations`]: operators' actions on a ring with servers, with clients and faults. Members stop gracefully, like
//! `witness run` on SIGTERM. Other processes stop servers. Failover is paused and resumed. One action runs without faults and must behave
//! as documented. Then all actions and faults are random.
//!
//! [`Scenario::MysqldOperations`]: crate::scenario::Scenario::MysqldOperations

use std::collections::BTreeSet;
use std::time::Duration;

use mysqld_model::Mysqld;
use raft_types::MemberId;
use ring_admin::{PauseRequest, ReconfigurationError};

use crate::dice::{millis, pick, pick_some};
use crate::event::Event;
use crate::faults::{Crash, Fault, MysqldFault};
use crate::member::Process;
use crate::mutation::Mutation;
use crate::operations::{Operation, Stopped};
use crate::shared::Shared;
use crate::tick::Tick;
use crate::world::World;
use crate::world::mysqlds::TIME_FOR_SERVERS;
use crate::world::slot::Slot;

/// Time limit for a ring without faults to have a primary and followers.
const TIME_TO_BE_CALM: Duration = Duration::from_secs(20);
/// Time limit for a member to stop without faults.
const TIME_TO_STOP: Duration = Duration::from_secs(20);
/// Duration of a server's stop by another process, including ten seconds for its sessions.
const TIME_OF_AN_UNASKED_STOP: Duration = Duration::from_secs(12);
/// Pause of an operator between two attempts.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// A pause may end earlier by this time, because its end is in whole seconds.
const SECONDS_ARE_WHOLE: Duration = Duration::from_secs(1);
/// The operator's name, which the ring records.
const OPERATOR: &str = "anna";
/// In the deliberately broken ring, the name of the caller that resumes failover without an order.
const UNKNOWN_MEMBER: &str = "unknown";

/// The operators' actions in progress.
#[derive(Default)]
pub(super) struct Operations {
    /// The members with servers that accept writes.
    open: BTreeSet<MemberId>,
    pause: Option<PauseOrder>,
    /// The leader that was asked to stop, and must transfer the leadership.
    hands_over: Option<MemberId>,
}

/// A pause of failover that an operator has requested.
struct PauseOrder {
    ends: PauseEnd,
    /// The answer to the request: the pinned primary.
    answer: Answer<MemberId>,
    /// True after the checkers were notified of the pause.
    in_force: bool,
    /// The answer to the operator's request to resume failover.
    resumes: Option<Answer<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PauseEnd {
    /// An operator resumes failover after this time, and repeats the request until it succeeds.
    ByOrder(Tick),
    /// The pause was requested with this end.
    ByItself(Tick),
    Never,
}

/// An answer of the leader; `None` until it is given.
type Answer<T> = Shared<Option<Result<T, ReconfigurationError>>>;

impl World {
    /// Runs one action without faults.
    pub(super) fn an_operation(&mut self) {
        match self.dice.u32(0..4) {
            _ if self.mutation == Some(Mutation::ResumeUnasked) => self.paused_outage(),
            0..=1 => self.planned_stop(),
            2 => self.paused_outage(),
            _ => self.unasked_stop(),
        }
    }

    // Actions without faults.

    /// Waits until there is a primary that accepts writes, and followers.
    pub(super) fn until_calm(&mut self) {
        let otherwise = "the ring does not settle";
        self.wait_until(otherwise, TIME_TO_BE_CALM, |world| world.is_calm());
    }

    pub(super) fn is_calm(&self) -> bool {
        let there = self.slots.values().filter(|slot| !slot.absent);
        let servers = self.servers();
        let open = servers.values().filter(|server| server.takes_writes());
        let Some((leader, _)) = self.serving() else {
            return false;
        };
        let primary = servers.get(&leader);
        let follows = |(id, slot): (&MemberId, &Slot)| {
            let view = slot.process().and_then(Process::mysqld);
            *id == leader || slot.setup.host.is_none() || view.is_some_and(|view| view.following)
        };
        there.into_iter().all(Slot::is_running)
            && primary.is_some_and(Mysqld::takes_writes)
            && open.count() == 1
            && self.slots.iter().all(follows)
    }

    /// Stops a member gracefully, in most cases the primary's member.
    fn planned_stop(&mut self) {
        let Some((leader, _)) = self.serving().filter(|_| self.goes_on()) else {
            return;
        };
        let servers: Vec<MemberId> = self.servers().into_keys().collect();
        let member = match self.dice.u32(0..4) {
            0 => *pick(&mut self.dice, &servers),
            _ => leader,
        };
        let candidates = self.slots.iter().filter(|(id, slot)| {
            **id != leader && slot.setup.host.is_some() && self.may_lead(&slot.setup.record)
        });
        // openraft's own search may take longer than a stopping member waits for another leader.
        let has_a_candidate = candidates.count() > 0 && self.shape.searches_itself;
        self.operations.hands_over = (member == leader && has_a_candidate).then_some(leader);
        let down = millis(&mut self.dice, 10..4_000);
        self.play(Fault::crash(member, Crash::Stop, down));
        let otherwise = format!("member {member} was asked to stop and still runs");
        self.wait_until(&otherwise, TIME_TO_STOP, |world| !world.runs(member));
        self.operations.hands_over = None;
        self.until_calm();
    }

    /// While failover is paused, makes the pinned primary or its server fail for some time. No other member may take over, and the pinned
    /// primary must return.
    fn paused_outage(&mut self) {
        self.pause_failover(None);
        self.steps(TRY_AGAIN);
        let order = self.operations.pause.as_ref();
        let is_paused = order.is_some_and(|order| order.in_force);
        let Some((pinned, _)) = self.serving().filter(|_| is_paused) else {
            return;
        };
        if self.mutation == Some(Mutation::ResumeUnasked) {
            self.ask_to_resume(UNKNOWN_MEMBER);
            self.steps(TRY_AGAIN);
        }
        let down = millis(&mut self.dice, 500..8_000);
        let fault = match self.dice.u32(0..5) {
            0 => Fault::crash(pinned, Crash::Stop, down),
            1 => Fault::crash(pinned, Crash::Kill, down),
            2 => Fault::Mysqld(pinned, MysqldFault::Kill),
            3 => Fault::Cut(vec![pinned], self.all_but(&[pinned]), down),
            _ => Fault::Pause(pinned, down),
        };
        self.play(fault);
        self.steps(down);
        let otherwise =
            format!("failover is paused, and member {pinned} does not come back to its place");
        self.wait_until(&otherwise, TIME_FOR_SERVERS, |world| {
            let host = world.host(pinned);
            host.is_some_and(|host| host.mysqld.takes_writes())
        });
        if let Some(order) = &mut self.operations.pause {
            order.ends = PauseEnd::ByOrder(self.now);
        }
    }

    /// Makes another process stop the primary's server, in most cases while commits wait for an ACK. The server must not complete these
    /// commits.
    fn unasked_stop(&mut self) {
        let Some((primary, _)) = self.serving().filter(|_| self.goes_on()) else {
            return;
        };
        if self.dice.u32(0..4) > 0 {
            // The primary is isolated, so that commits wait for an ACK.
            let before = millis(&mut self.dice, 0..300);
            self.isolate(primary, before + TIME_OF_AN_UNASKED_STOP);
            self.steps(before);
        }
        self.play(Fault::Mysqld(primary, MysqldFault::Terminate));
        // In half of the cases, the whole host shuts down.
        if self.dice.bool() {
            let before = millis(&mut self.dice, 0..1_500);
            self.steps(before);
            let down = millis(&mut self.dice, 10..4_000);
            self.play(Fault::crash(primary, Crash::Stop, down));
        }
        self.steps(TIME_OF_AN_UNASKED_STOP);
    }

    // Actions during faults.

    /// Chooses an operator's next action on a server or its member.
    pub(super) fn operation(&mut self) -> Option<Fault> {
        match self.dice.u32(0..6) {
            0..=2 => {
                let (member, down) = (self.a_server(), millis(&mut self.dice, 10..3_000));
                Some(Fault::crash(member, Crash::Stop, down))
            }
            3 => {
                let is_endless = self.dice.u32(0..3) == 0;
                let length = Duration::from_secs(self.dice.u64(2..15));
                self.pause_failover((!is_endless).then_some(length));
                let ends = self.now.after(length + TRY_AGAIN * 10);
                if let Some(order) = &mut self.operations.pause
                    && order.ends == PauseEnd::Never
                    && self.dice.bool()
                {
                    order.ends = PauseEnd::ByOrder(ends);
                }
                None
            }
            _ => {
                // Only closed servers are stopped. The commits of an open server would depend on its member, which may be down: see
                // `unasked_stop`.
                let servers = self.servers().into_iter();
                let closed = servers.filter(|(_, server)| !server.is_open());
                let closed: Vec<MemberId> = closed.map(|(id, _)| id).collect();
                let member = pick_some(&mut self.dice, &closed)?;
                Some(Fault::Mysqld(member, MysqldFault::Terminate))
            }
        }
    }

    /// Requests a pause of failover from the leader, unless failover is already paused.
    fn pause_failover(&mut self, length: Option<Duration>) {
        if self.operations.pause.is_some() || self.leader().is_none() {
            return;
        }
        let request = PauseRequest {
            for_seconds: length.map(|length| length.as_secs()),
            by: OPERATOR.to_owned(),
            reason: "the host is under maintenance".to_owned(),
        };
        let record = self.record.clone();
        let answer = self.ask_leader(|member| async move {
            let outcome = member.pause(&request).await;
            record.note(&format!(
                "member {} pauses failover: {outcome:?}",
                member.id()
            ));
            outcome.map(|(paused, _)| paused.primary)
        });
        self.record.saw(&Event::Operation(Operation::AsksForAPause));
        let end = |length: Duration| self.now.after(length.saturating_sub(SECONDS_ARE_WHOLE));
        self.operations.pause = Some(PauseOrder {
            ends: length.map_or(PauseEnd::Never, |length| PauseEnd::ByItself(end(length))),
            answer,
            in_force: false,
            resumes: None,
        });
    }

    /// Requests the leader to resume failover.
    fn ask_to_resume(&self, by: &'static str) -> Answer<()> {
        let record = self.record.clone();
        self.ask_leader(move |member| async move {
            let outcome = member.resume(by).await;
            record.note(&format!("{by} resumes failover: {outcome:?}"));
            outcome.map(drop)
        })
    }

    // Checks after each step.

    /// Reports servers and stopped members to the checkers, and ends pauses.
    pub(super) fn check_operations(&mut self) {
        let servers = self.servers();
        let open = servers.iter().filter(|(_, server)| server.is_open());
        let open: BTreeSet<MemberId> = open.map(|(id, _)| *id).collect();
        for &by in open.difference(&self.operations.open) {
            self.record.saw(&Event::Operation(Operation::Opens { by }));
        }
        self.operations.open = open;
        let left =
            |(id, slot): (&MemberId, &mut Slot)| std::mem::take(&mut slot.left).then_some(*id);
        let stopped: Vec<MemberId> = self.slots.iter_mut().filter_map(left).collect();
        for member in stopped {
            let stopped = Stopped {
                member,
                server_runs: servers.get(&member).is_some_and(Mysqld::is_running),
                hands_over: self.operations.hands_over == Some(member),
                successor: self.serving().map(|(id, _)| id),
            };
            let stopped = Operation::Stopped(stopped);
            self.record.saw(&Event::Operation(stopped));
        }
        if let Some(mut order) = self.operations.pause.take()
            && !self.is_over(&mut order)
        {
            self.operations.pause = Some(order);
        }
    }

    /// Follows a pause. Returns whether it is over.
    fn is_over(&self, order: &mut PauseOrder) -> bool {
        match order.answer.lock().clone() {
            // If the pause took effect despite the error, it stays until the end of the run.
            Some(Err(_)) => return true,
            Some(Ok(primary)) if !order.in_force && order.resumes.is_none() => {
                order.in_force = true;
                let paused = Operation::Paused { primary };
                self.record.saw(&Event::Operation(paused));
            }
            Some(Ok(_)) | None => {}
        }
        match order.ends {
            PauseEnd::Never => false,
            PauseEnd::ByOrder(at) | PauseEnd::ByItself(at) if self.now < at => false,
            PauseEnd::ByItself(_) => {
                self.record.saw(&Event::Operation(Operation::Resumes));
                true
            }
            PauseEnd::ByOrder(_) => self.is_resumed(order),
        }
    }

    /// Repeats the operator's request until failover is resumed. Returns whether it is.
    fn is_resumed(&self, order: &mut PauseOrder) -> bool {
        match order.resumes.as_ref().map(|told| told.lock().clone()) {
            Some(Some(Ok(()) | Err(ReconfigurationError::NotPaused))) => return true,
            Some(_) => {}
            None => self.record.saw(&Event::Operation(Operation::Resumes)),
        }
        order.ends = PauseEnd::ByOrder(self.now.after(TRY_AGAIN));
        order.resumes = Some(self.ask_to_resume(OPERATOR));
        false
    }
}
