//! Plays faults, and ends temporary ones.

use std::time::Duration;

use raft_types::{MemberId, MemberKind};

use crate::faults;
use crate::faults::{Crash, Fault};
use crate::mutation::Mutation;
use crate::network::Weather;
use crate::scenario::Scenario;
use crate::tick::Tick;
use crate::world::World;
use crate::world::slot::Slot;
use crate::world::undo::Undo;

/// Time until a crash, if its disk call does not occur before.
const CRASH_PATIENCE: Duration = Duration::from_millis(300);
/// Time until all briefly killed members are back.
const BACK_AGAIN: Duration = Duration::from_millis(35);
/// Default downtime of a failed member.
const SHORT_STOP: Duration = Duration::from_millis(200);

impl World {
    /// Plays a fault.
    pub(super) fn play(&mut self, fault: Fault) {
        self.record.fault(&format!("FAULT {fault:?}"));
        match fault {
            Fault::Crash {
                member,
                crash,
                after_calls,
                down,
            } => self.crash(member, crash, after_calls, down),
            Fault::Pause { member, time } => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.pause();
                }
                self.later(time, Undo::Resume(member));
            }
            Fault::Cut {
                from,
                to,
                both,
                time,
            } => {
                let mut pairs = Vec::new();
                for one in &from {
                    for other in &to {
                        pairs.push((*one, *other));
                        if both {
                            pairs.push((*other, *one));
                        }
                    }
                }
                self.queue
                    .links(|links| pairs.iter().for_each(|(from, to)| links.cut(*from, *to)));
                self.later(time, Undo::Mend(pairs));
            }
            Fault::ForgetConnections { one, other } => {
                if let Some(streams) = &self.streams {
                    streams.forget(one, other);
                }
            }
            Fault::Weather { weather, time } => {
                self.queue.links(|links| links.weather = weather);
                self.later(time, Undo::ClearWeather);
            }
            Fault::Mysqld { member, fault } => self.play_at_server(member, fault),
            Fault::SlowDisk {
                member,
                delay,
                time,
            } => {
                self.slow_down(member, delay);
                self.later(time, Undo::NormalPace(member));
            }
            Fault::Lag {
                member,
                delay,
                time,
            } => {
                self.queue
                    .links(|links| links.lag(member, Some(Tick::steps(delay))));
                self.later(time, Undo::NoLag(member));
            }
            Fault::FullDisk { member, room, time } => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.disk_fails = true;
                    slot.full = true;
                    slot.setup.disk.leave_room(room);
                }
                self.later(time, Undo::Space(member));
            }
            Fault::BadCall {
                member,
                after_calls,
                fault,
            } => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.disk_fails = true;
                    let call = slot.setup.disk.calls() + after_calls;
                    slot.setup.disk.fail_call(call, fault);
                }
            }
            Fault::Rot { member, place } => self.rot(member, place),
            Fault::RotTail {
                member,
                place,
                after,
                down,
            } => self.rot_tail_soon(member, place, after, down),
            Fault::Wipe {
                member,
                alone: Some(after),
                down,
            } => {
                self.alone_with_the_leader(member, after);
                self.later(after, Undo::Wipe { member, down });
            }
            Fault::Wipe {
                member,
                alone: None,
                ..
            } => self.wipe(member, None),
            Fault::Relapse { which, alone, time } => self.relapse_soon(which, alone, time),
            Fault::FalseAlarm { member, time } => {
                let term = self.latest_term();
                if self.false_alarms.may_come(member, term) {
                    self.alarm_falsely(member, time);
                }
            }
            Fault::FalseDeath { time } => self.false_death(time),
            Fault::Campaign { member } => self.campaign(member),
            Fault::Transfer { to } => self.transfer(to),
            Fault::Promote { to } => self.promote(to),
            Fault::SetPolicy { policy } => self.set_policy(policy),
            Fault::Add { member } => self.add(member),
            Fault::Remove { member } => self.remove(member),
            Fault::Purge {
                member,
                keep,
                waits,
            } => self.purge(member, keep, waits),
        }
    }

    fn alarm_falsely(&mut self, member: MemberId, time: Duration) {
        self.queue.links(|links| links.alarm(member, true));
        self.later(time, Undo::NoAlarm(member));
    }

    fn false_death(&mut self, time: Duration) {
        let Some(leader) = self.leader() else {
            return;
        };
        let others = self.there().into_iter().filter(|id| *id != leader);
        let others: Vec<MemberId> = others.collect();
        for &member in &others {
            self.alarm_falsely(member, time);
        }
        self.play(Fault::Cut {
            from: vec![leader],
            to: others,
            both: true,
            time,
        });
    }

    fn relapse_soon(&mut self, which: u64, alone: Duration, time: Duration) {
        let Some(leader) = self.leader() else {
            return;
        };
        let process = self.slots.get(&leader).and_then(Slot::process);
        let view = process.map(|process| process.with(|member| member.status().ring_view));
        let sets = view.map(|view| view.voter_sets).unwrap_or_default();
        // If the leader's vote is needed as well, this cannot have an effect.
        if sets.iter().any(|set| set.len() < 3) {
            return;
        }
        // After this time it has waited for a lease, and campaigns repeatedly.
        let timers = self.shape.timers;
        let alone = match self.mutation.is_some_and(Mutation::concerns_primaries) {
            // It must not lack the writes in the meantime.
            true => timers.lease + alone / 5,
            false => timers.longest_election() + alone,
        };
        // Others would not be elected, or could not serve.
        let fit = self.slots.iter().filter(|(id, slot)| {
            let serves = slot.is_running() && slot.setup.record.kind == MemberKind::Database;
            serves && **id != leader && sets.iter().all(|set| set.contains(id))
        });
        let fit: Vec<MemberId> = fit.map(|(id, _)| *id).collect();
        let Some(&candidate) = fit.get(which as usize % fit.len().max(1)) else {
            return;
        };
        self.play(Fault::Cut {
            from: vec![leader],
            to: vec![candidate],
            both: true,
            time: alone + time,
        });
        let relapse = Undo::Relapse {
            leader,
            candidate,
            time,
        };
        self.later(alone, relapse);
    }

    fn relapse(&mut self, leader: MemberId, candidate: MemberId, time: Duration) {
        let others = self.there().into_iter();
        let others: Vec<MemberId> = others
            .filter(|id| ![leader, candidate].contains(id))
            .collect();
        self.play(Fault::Cut {
            from: vec![leader],
            to: others.clone(),
            both: true,
            time,
        });
        for member in others {
            let down = Duration::from_millis(self.dice.u64(5..20));
            self.crash(member, Crash::Kill, 0, down);
        }
        self.later(BACK_AGAIN, Undo::Stand(candidate));
    }

    /// All members except this one and the leader are disconnected for this time: only these two have the commits in between.
    fn alone_with_the_leader(&mut self, member: MemberId, time: Duration) {
        let leader = self.leader();
        let (pair, others): (Vec<_>, Vec<_>) = self
            .slots
            .keys()
            .copied()
            .partition(|id| *id == member || Some(*id) == leader);
        let pairs: Vec<_> = pair
            .iter()
            .flat_map(|one| {
                others
                    .iter()
                    .flat_map(|other| [(*one, *other), (*other, *one)])
            })
            .collect();
        self.queue
            .links(|links| pairs.iter().for_each(|(from, to)| links.cut(*from, *to)));
        self.later(time, Undo::Mend(pairs));
    }

    /// The member's log rots at its end after a time alone with the leader.
    fn rot_tail_soon(&mut self, member: MemberId, place: u64, after: Duration, down: Duration) {
        self.alone_with_the_leader(member, after);
        self.later(
            after,
            Undo::RotTail {
                member,
                place,
                down,
            },
        );
    }

    fn crash(&mut self, member: MemberId, crash: Crash, after_calls: u64, down: Duration) {
        let Some(slot) = self.slots.get_mut(&member) else {
            return;
        };
        slot.down_for = Some(down);
        if crash == Crash::Stop && self.scenario == Some(Scenario::MysqldOperations) {
            slot.stop();
            return;
        }
        slot.crash = Some(crash);
        if after_calls == 0 || crash == Crash::Stop {
            slot.fall();
            return;
        }
        let last = slot.setup.disk.calls() + after_calls;
        slot.setup.disk.cut_power_after(last);
        self.later(CRASH_PATIENCE, Undo::CrashNow(member));
    }

    pub(super) fn later(&mut self, time: Duration, undo: Undo) {
        self.undo_number += 1;
        let at = self.now.after(time);
        self.undo.insert((at, self.undo_number), undo);
    }

    /// Ends faults whose time is over.
    pub(super) fn undo_due(&mut self) {
        while let Some((&key, _)) = self.undo.range(..=(self.now, u64::MAX)).next() {
            if let Some(undo) = self.undo.remove(&key) {
                self.undo(undo);
            }
        }
    }

    fn undo(&mut self, undo: Undo) {
        if !matches!(
            undo,
            Undo::Look(_) | Undo::Decide(..) | Undo::Replace(_) | Undo::SetPolicy(_)
        ) {
            self.record.note(&format!("ENDS {undo:?}"));
        }
        match undo {
            Undo::Mend(pairs) => self
                .queue
                .links(|links| pairs.iter().for_each(|(from, to)| links.mend(*from, *to))),
            Undo::ClearWeather => self.queue.links(|links| links.weather = Weather::default()),
            Undo::Resume(member) => {
                let now = self.now;
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.resume(now);
                }
            }
            Undo::ResumeMysqld(member) => {
                if let Some(host) = self
                    .slots
                    .get(&member)
                    .and_then(|slot| slot.setup.host.as_ref())
                {
                    host.mysqld.resume();
                }
            }
            Undo::LosePower(member) => {
                let crash = faults::power_cut(&mut self.dice);
                let down = Duration::from_millis(self.dice.u64(5..2_000));
                self.crash(member, crash, 0, down);
            }
            Undo::NormalPace(member) => {
                self.slow_down(member, Duration::ZERO);
            }
            Undo::NoLag(member) => self.queue.links(|links| links.lag(member, None)),
            Undo::NoAlarm(member) => {
                self.queue.links(|links| links.alarm(member, false));
                self.false_alarms.ends(member, self.latest_term());
            }
            Undo::Space(member) => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.full = false;
                    slot.setup.disk.set_capacity(None);
                }
            }
            Undo::CutOff(member) => self.cut_off(member),
            Undo::LoseQuorum => self.lose_quorum(),
            Undo::Lose(lost) => self.lose(&lost),
            Undo::Look(looks) => self.look(looks),
            Undo::Decide(given, looks) => self.decide(&given, looks),
            Undo::Stand(member) => self.stand(member),
            Undo::Relapse {
                leader,
                candidate,
                time,
            } => self.relapse(leader, candidate, time),
            Undo::Wipe { member, down } => self.wipe(member, Some(down)),
            Undo::Replace(replacement) => self.replace(replacement),
            Undo::SetPolicy(request) => self.ask_for_policy(request),
            Undo::BringBack(members) => self.bring_back(&members),
            Undo::RotTail {
                member,
                place,
                down,
            } => {
                // Another disk may have rotted in the meantime.
                if self.may_lose_bits().contains(&member) {
                    self.rot_tail(member, place, down);
                }
            }
            Undo::CrashNow(member) => {
                if let Some(slot) = self.slots.get_mut(&member)
                    && slot.crash.is_some()
                {
                    slot.fall();
                }
            }
        }
    }

    /// Starts members whose downtime is over.
    pub(super) fn restart_fallen(&mut self) {
        let again: Tick = self.now.after(SHORT_STOP);
        let due = |slot: &Slot| slot.is_down() && slot.start_at.is_some_and(|at| at <= self.now);
        let starting = self.slots.iter().filter(|(_, slot)| due(slot));
        let starting: Vec<MemberId> = starting.map(|(id, _)| *id).collect();
        starting.into_iter().for_each(|id| self.change_timers(id));
        for slot in self.slots.values_mut() {
            if !slot.is_down() {
                continue;
            }
            match slot.start_at {
                None => {
                    let down_for = slot.down_for.take().unwrap_or(SHORT_STOP);
                    slot.start_at = Some(self.now.after(down_for));
                }
                Some(at) if at <= self.now => {
                    let up = slot.start(&self.queue, &self.record, self.now);
                    slot.start_at = (!up).then_some(again);
                }
                Some(_) => {}
            }
        }
    }
}
