//! A member in the world: its permanent disk, and its current process, if any.

use std::path::PathBuf;
use std::time::Duration;

use raft_types::{FormatRange, FormatVersion, Incarnation};
use ring_admin::{Envelope, Identity, Party, admit};
use testkit::disk::FaultyDisk;
use testkit::network::{Call, Reply};

use crate::event::{Damage, Event};
use crate::faults::Crash;
use crate::member::{
    AdminCall, Asking, OpenFailure, Process, ProcessSetup, Started, Waiting, upgraded,
};
use crate::mutation::Mutation;
use crate::network::{Body, Message, MessageQueue, SessionPart};
use crate::panics;
use crate::record::Record;
use crate::tick::Tick;
use crate::world::empty_disk;

/// A duration that is longer than any run.
pub(super) const FOR_GOOD: Duration = Duration::from_secs(3_600);

/// A closed log file, with its contents before the damage.
#[derive(Debug)]
pub(super) struct ColdFile {
    pub(super) path: PathBuf,
    pub(super) good: Vec<u8>,
}

impl ColdFile {
    /// Returns whether the file on the disk still differs from the original.
    pub(super) fn is_damaged(&self, disk: &FaultyDisk) -> bool {
        let now = disk.contents(&self.path);
        now.is_some_and(|bytes| bytes != self.good)
    }
}

/// The place of a member in the world.
pub(super) struct Slot {
    pub(super) setup: ProcessSetup,
    state: State,
    /// How the process ends when its disk is cut off.
    pub(super) crash: Option<Crash>,
    /// True if the process has ended and its host has not. The other members must be notified.
    pub(super) hung_up: bool,
    /// True if the process has ended as requested, with its server.
    pub(super) left: bool,
    /// When the process is started next.
    pub(super) start_at: Option<Tick>,
    /// How long the process is down after a failure.
    pub(super) down_for: Option<Duration>,
    /// True if the member is not in the ring yet, or was removed. Its process is not started.
    pub(super) absent: bool,
    /// True if the disk is full.
    pub(super) full: bool,
    /// The index up to which the log can no longer be truncated, as last recorded.
    pub(super) settled: Option<u64>,
    /// True if calls to the disk fail deliberately. The process may then stop.
    pub(super) disk_fails: bool,
    /// True if the ring continued without the member's entries after a quorum repair. The process may then stop.
    pub(super) repaired: bool,
    /// True if a bit of the disk was flipped. No other disk may rot then, so that a majority remains.
    pub(super) damaged: bool,
    /// The damage that the next start finds in the log.
    pub(super) damage: Damage,
    /// The log files that were damaged while the process ran.
    pub(super) cold: Vec<ColdFile>,
}

enum State {
    Running(Process),
    /// The member asks the other members before it takes part.
    Asking(Box<Asking>),
    /// The member has no ring yet.
    Waiting(Box<Waiting>),
    /// The process is paused, and will resume.
    Paused(Process),
    /// There is no process. The host refuses connections, or does not answer.
    Down {
        refuses: bool,
    },
    /// The process runs with an empty disk, and accepts no calls of the ring.
    Stranger {
        why: String,
    },
    /// The member cannot return.
    Lost,
}

impl Slot {
    pub(super) fn new(setup: ProcessSetup) -> Self {
        Self {
            setup,
            state: State::Down { refuses: true },
            crash: None,
            hung_up: false,
            left: false,
            start_at: None,
            down_for: None,
            absent: false,
            full: false,
            settled: None,
            disk_fails: false,
            repaired: false,
            damaged: false,
            damage: Damage::None,
            cold: Vec::new(),
        }
    }

    /// Returns the process if it runs.
    pub(super) fn process(&self) -> Option<&Process> {
        match &self.state {
            State::Running(process) => Some(process),
            _ => None,
        }
    }

    /// Returns the process if it runs or is paused.
    pub(super) fn living(&self) -> Option<&Process> {
        match &self.state {
            State::Running(process) | State::Paused(process) => Some(process),
            _ => None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost | State::Stranger { .. })
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.state, State::Down { .. }) && !self.absent
    }

    /// Starts the process. Returns false if the start failed and may be repeated.
    pub(super) fn start(&mut self, queue: &MessageQueue, record: &Record, now: Tick) -> bool {
        if !self.is_down() {
            return true;
        }
        if let Some(transport) = &self.setup.transport
            && !transport.takes_its_directory()
        {
            let member = self.setup.id;
            record.note(&format!(
                "the program of member {member} is too old for its directory; the newer one is restored"
            ));
            transport.install(upgraded());
        }
        self.disk_fails = self.full;
        // If a damaged file was not replaced durably before the failure, the start finds the damage.
        if self.has_cold_damage() {
            (self.damaged, self.damage) = (true, Damage::Closed);
        }
        let started = Process::start(&self.setup, queue, record, now, self.damage);
        match started {
            Ok(started) => {
                self.state = match started {
                    Started::Up(process) => State::Running(*process),
                    Started::Asking(asking) => State::Asking(asking),
                    Started::Waiting(waiting) => State::Waiting(waiting),
                };
                if matches!(self.damage, Damage::Tail | Damage::Wiped) {
                    self.damage = Damage::None;
                }
                true
            }
            Err(failure) => self.did_not_start(failure, record),
        }
    }

    /// Handles a failed start. Returns true if the member is lost.
    fn did_not_start(&mut self, failure: OpenFailure, record: &Record) -> bool {
        match failure {
            OpenFailure::Off => {
                record.note(&format!(
                    "member {} is cut off while it starts",
                    self.setup.id
                ));
                self.fall();
                false
            }
            OpenFailure::Disk(why) => {
                record.note(&format!("member {} does not start: {why}", self.setup.id));
                self.setup.disk.restart_process();
                false
            }
            OpenFailure::Refused(why) => {
                record.note(&format!("member {} is lost: {why}", self.setup.id));
                self.state = State::Lost;
                true
            }
        }
    }

    /// Returns whether the host processes packets.
    pub(super) fn machine_runs(&self) -> bool {
        !matches!(self.state, State::Down { refuses: false } | State::Lost)
    }

    /// Returns whether messages reach the process or its host. Messages to a paused process wait.
    pub(super) fn takes_messages(&self) -> bool {
        !matches!(self.state, State::Paused(_))
    }

    pub(super) fn deliver(&self, message: Message, queue: &MessageQueue) {
        match &self.state {
            State::Running(process) => process.deliver(message),
            State::Asking(asking) => asking.deliver(message, queue),
            State::Down { refuses: true } | State::Stranger { .. } | State::Waiting(_) => {
                let (why, knocked) = match &self.state {
                    State::Stranger { why } => (why.clone(), Reply::Answers),
                    State::Waiting(_) => ("it has no ring yet".to_owned(), Reply::Answers),
                    _ => ("nothing listens there".to_owned(), Reply::Refused),
                };
                let body = match message.body {
                    Body::Call(id, Call::Knock) => Body::Reply(id, knocked),
                    Body::Call(id, _) => Body::Reply(id, Reply::Unreachable(why)),
                    Body::Request { stream, .. } => Body::Broken(stream, why),
                    Body::Session(session, SessionPart::Request { .. } | SessionPart::End(_)) => {
                        Body::Session(session, SessionPart::Broken(why))
                    }
                    Body::Session(session, SessionPart::Answer(_)) => {
                        Body::Session(session, SessionPart::Dropped)
                    }
                    _ => return,
                };
                queue.send(Message {
                    from: message.to,
                    to: message.from,
                    body,
                });
            }
            State::Paused(_) | State::Down { refuses: false } | State::Lost => {}
        }
    }

    /// Passes an admin call to the process. If the process is paused, returns the call.
    pub(super) fn answer(&self, call: AdminCall) -> Option<AdminCall> {
        match &self.state {
            State::Running(process) => process.answer(call),
            State::Waiting(waiting) => waiting.answer(call),
            State::Paused(_) => return Some(call),
            // No process receives the call.
            State::Asking(_) | State::Down { .. } | State::Stranger { .. } | State::Lost => {}
        }
        None
    }

    /// Runs the process until `now`. The process ends if its disk was cut off or openraft has stopped.
    pub(super) fn run_until(&mut self, now: Tick, record: &Record) {
        let ready = match &mut self.state {
            State::Asking(asking) => asking.run_until(now),
            State::Waiting(waiting) => waiting.run_until(now),
            _ => false,
        };
        if ready || self.setup.disk.is_off() {
            let up = match std::mem::replace(&mut self.state, State::Down { refuses: true }) {
                State::Asking(asking) => asking.end(),
                State::Waiting(waiting) => waiting.end(),
                other => {
                    self.state = other;
                    return self.advance(now, record);
                }
            };
            match up {
                Ok(process) => self.state = State::Running(process),
                Err(failure) => {
                    self.did_not_start(failure, record);
                    return;
                }
            }
        }
        self.advance(now, record);
    }

    fn advance(&mut self, now: Tick, record: &Record) {
        let State::Running(process) = &mut self.state else {
            return;
        };
        process.run_until(now);
        for words in panics::take() {
            record.saw(&Event::Panicked {
                member: self.setup.id,
                words,
            });
        }
        if self.setup.disk.is_off() {
            record.note(&format!("member {} is gone", self.setup.id));
            self.fall();
        } else if let Some(fault) = process.stopped() {
            record.saw(&Event::EngineStopped {
                member: self.setup.id,
                why: fault.to_string(),
                excused: self.disk_fails || self.repaired,
            });
            self.fall_by(Crash::Kill, None);
        } else if process.has_left() {
            self.left = true;
            self.fall_by(Crash::Stop, None);
        }
    }

    /// Stops the process gracefully. If it has a server, this takes some time.
    pub(super) fn stop(&mut self) {
        let first = self.setup.mutation == Some(Mutation::StopTheServerFirst);
        match (self.living(), &self.setup.host) {
            (Some(process), Some(_)) if !first => return process.leave(),
            // Without a running member, systemd kills the server because of `KillMode=mixed`. The mutation stops the server first.
            (_, Some(host)) if first => host.mysqld.terminate(),
            (_, Some(host)) => host.mysqld.kill(),
            (_, None) => {}
        }
        self.fall_by(Crash::Stop, None);
    }

    /// Ends the process with this crash. `down` is how long it stays down; `None`: as set before.
    pub(super) fn fall_by(&mut self, crash: Crash, down: Option<Duration>) {
        self.crash = Some(crash);
        self.down_for = down.or(self.down_for);
        self.fall();
    }

    /// Ends the process, and does not start it again during the run.
    pub(super) fn fall_permanently(&mut self, crash: Crash) {
        self.start_at = None;
        self.fall_by(crash, Some(FOR_GOOD));
    }

    /// Ends the process immediately. The disk gets the state after the crash.
    pub(super) fn fall(&mut self) {
        let crash = self.crash.take().unwrap_or(Crash::Kill);
        self.note_settled();
        // A store that is dropped normally would write its position to the disk.
        if crash != Crash::Stop {
            let disk = &self.setup.disk;
            disk.cut_power_after(disk.calls());
        }
        if let (Crash::PowerCut(_), Some(transport)) = (crash, &self.setup.transport) {
            transport.switch_off(self.setup.id);
        }
        let before = std::mem::replace(&mut self.state, State::Down { refuses: true });
        match (before, crash) {
            (State::Running(process), Crash::Stop) => process.shut_down(),
            (state @ (State::Lost | State::Stranger { .. }), _) => {
                self.state = state;
                return;
            }
            (ended, _) => drop(ended),
        }
        match crash {
            Crash::Stop | Crash::Kill => {
                self.setup.disk.restart_process();
                self.hung_up = true;
            }
            Crash::PowerCut(survival) => {
                self.setup.disk.power_cycle(survival);
                if let Some(host) = &self.setup.host {
                    host.lose_power(survival);
                }
                self.state = State::Down { refuses: false };
            }
        }
    }

    /// Replaces the disk by an empty one, with the old configuration. The product decides whether the member takes part, from its data
    /// directory and the ring id in calls.
    pub(super) fn wipe(&mut self, record: &Record) {
        self.fall_by(Crash::Kill, None);
        let own = self.setup.id;
        let call = Envelope {
            ring: self.setup.ring,
            from: Party {
                member: own,
                incarnation: Incarnation::random(),
            },
            to: Party {
                member: own,
                incarnation: self.setup.record.incarnation,
            },
            format: FormatVersion::FIRST,
            speaks: FormatRange::OF_THIS_PROGRAM,
        };
        let refusal = admit(&call, &Identity::fresh(own), call.speaks, |_| None).err();
        self.setup.disk = empty_disk();
        (self.damaged, self.damage) = (true, Damage::Wiped);
        self.settled = None;
        let refusal = refusal.filter(|_| self.setup.mutation != Some(Mutation::TrustAWipedDisk));
        if let Some(refusal) = refusal {
            record.note(&format!(
                "member {own} comes back with an empty disk: {refusal}"
            ));
            self.state = State::Stranger {
                why: refusal.to_string(),
            };
        }
    }

    /// Pauses the process.
    pub(super) fn pause(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Lost) {
            State::Running(process) => State::Paused(process),
            other => other,
        };
    }

    /// Resumes the process.
    pub(super) fn resume(&mut self, now: Tick) {
        self.state = match std::mem::replace(&mut self.state, State::Lost) {
            State::Paused(mut process) => {
                process.resume(now);
                State::Running(process)
            }
            other => other,
        };
    }

    /// Makes the disk work normally again.
    pub(super) fn repair_disk(&mut self) {
        self.setup.disk.set_capacity(None);
        self.full = false;
        self.setup.disk.forget_faults();
        self.setup.pace.set(Duration::ZERO);
        self.crash = None;
    }

    /// Returns whether the disk was never written.
    pub(super) fn is_new(&self) -> bool {
        self.setup.disk.calls() == 0
    }

    /// Records the index up to which the log is committed and durable on this member.
    pub(super) fn note_settled(&mut self) {
        let Some(process) = self.living() else {
            return;
        };
        let committed = process.outline().committed.map(|mark| mark.index);
        let durable = process.log().durable().map(|durable| durable.index);
        self.settled = self.settled.max(committed.min(durable));
    }

    /// Switches off a member that is no longer in the ring.
    pub(super) fn leave(&mut self) {
        self.fall();
        self.absent = true;
    }

    /// Ends the process at the end of the run.
    pub(super) fn end(&mut self) {
        self.state = State::Lost;
    }
}
