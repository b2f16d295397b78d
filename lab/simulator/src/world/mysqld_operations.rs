//! [`Scenario::MysqldOperations`]: operators' actions on a ring with servers, under client load and faults. Members stop gracefully, as
//! `witness run` on SIGTERM; other processes stop servers; failover is paused and resumed. One action runs without faults, and has to
//! behave as documented; then everything is random.
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

/// Time for an unaffected ring to have a primary and followers, or to have them again.
const TIME_TO_BE_CALM: Duration = Duration::from_secs(20);
/// Time for a member's stop without faults.
const TIME_TO_STOP: Duration = Duration::from_secs(20);
/// Time of a server's stop by other processes, including ten seconds for its sessions.
const TIME_OF_AN_UNASKED_STOP: Duration = Duration::from_secs(12);
/// Pause between two attempts of an operator.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// A pause may end this much early, because its end is in whole seconds.
const SECONDS_ARE_WHOLE: Duration = Duration::from_secs(1);
/// The recorded operator.
const OPERATOR: &str = "anna";
/// The caller that resumes failover without an order, in the deliberately broken ring.
const UNKNOWN_MEMBER: &str = "unknown";

/// The operators' running work.
#[derive(Default)]
pub(super) struct Operations {
    /// Members whose servers accept writes.
    open: BTreeSet<MemberId>,
    pause: Option<PauseOrder>,
    /// The leader that was asked to stop, and has to hand over.
    hands_over: Option<MemberId>,
}

/// An operator's request to pause failover.
struct PauseOrder {
    ends: PauseEnd,
    /// The pinned primary.
    answer: Answer<MemberId>,
    /// The checkers were notified.
    in_force: bool,
    /// An operator's request to end it.
    resumes: Option<Answer<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PauseEnd {
    /// An operator resumes after this moment, repeating the request as needed.
    ByOrder(Tick),
    /// It was requested with an end.
    ByItself(Tick),
    Never,
}

/// A leader's answer, once given.
type Answer<T> = Shared<Option<Result<T, ReconfigurationError>>>;

impl World {
    /// One action without faults.
    pub(super) fn an_operation(&mut self) {
        match self.dice.u32(0..4) {
            _ if self.mutation == Some(Mutation::ResumeUnasked) => self.paused_outage(),
            0..=1 => self.planned_stop(),
            2 => self.paused_outage(),
            _ => self.unasked_stop(),
        }
    }

    // Actions without faults.

    /// Waits for a primary that accepts writes, and for followers.
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

    /// A member is stopped gracefully, mostly the primary's.
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
        // The engine's own search may take longer than a stopping member waits for its successor.
        let has_a_candidate = candidates.count() > 0 && self.shape.searches_itself;
        self.operations.hands_over = (member == leader && has_a_candidate).then_some(leader);
        let down = millis(&mut self.dice, 10..4_000);
        self.play(Fault::crash(member, Crash::Stop, down));
        let otherwise = format!("member {member} was asked to stop and still runs");
        self.wait_until(&otherwise, TIME_TO_STOP, |world| !world.runs(member));
        self.operations.hands_over = None;
        self.until_calm();
    }

    /// The pinned primary or its server is down for a while; no other member takes over, and it resumes its role.
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

    /// Another process stops the primary's server, mostly while commits wait: it must not complete them.
    fn unasked_stop(&mut self) {
        let Some((primary, _)) = self.serving().filter(|_| self.goes_on()) else {
            return;
        };
        if self.dice.u32(0..4) > 0 {
            // Commits start to wait.
            let before = millis(&mut self.dice, 0..300);
            self.isolate(primary, before + TIME_OF_AN_UNASKED_STOP);
            self.steps(before);
        }
        self.play(Fault::Mysqld(primary, MysqldFault::Terminate));
        // The whole host shuts down.
        if self.dice.bool() {
            let before = millis(&mut self.dice, 0..1_500);
            self.steps(before);
            let down = millis(&mut self.dice, 10..4_000);
            self.play(Fault::crash(primary, Crash::Stop, down));
        }
        self.steps(TIME_OF_AN_UNASKED_STOP);
    }

    // Actions during faults.

    /// An operator's next action on a server or its member.
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
                // An open server then depends on its member, which may be absent: see `unasked_stop`.
                let servers = self.servers().into_iter();
                let closed = servers.filter(|(_, server)| !server.is_open());
                let closed: Vec<MemberId> = closed.map(|(id, _)| id).collect();
                let member = pick_some(&mut self.dice, &closed)?;
                Some(Fault::Mysqld(member, MysqldFault::Terminate))
            }
        }
    }

    /// An operator pauses failover at the leader, unless it is paused.
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

    /// Notifies the checkers of servers and stopped members, and ends pauses.
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

    /// Tracks a pause; returns whether nothing remains to be done.
    fn is_over(&self, order: &mut PauseOrder) -> bool {
        match order.answer.lock().clone() {
            // If it takes effect nevertheless, it stays to the end.
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

    /// The operator repeats the request until failover is resumed. Returns whether it is.
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
