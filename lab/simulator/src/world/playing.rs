//! Injects faults, and ends temporary faults.

use std::time::Duration;

use raft_types::{MemberId, MemberKind};

use crate::dice::millis;
use crate::faults;
use crate::faults::{Crash, Fault, MysqldFault};
use crate::mutation::Mutation;
use crate::network::Weather;
use crate::scenario::Scenario;
use crate::tick::Tick;
use crate::world::World;
use crate::world::slot::Slot;

/// Time until a crash, if the disk call at which it should occur does not happen before.
const CRASH_PATIENCE: Duration = Duration::from_millis(300);
/// Time after which all briefly killed members run again.
const BACK_AGAIN: Duration = Duration::from_millis(35);
/// The time for which a failed member is down, unless the fault states another.
const SHORT_STOP: Duration = Duration::from_millis(200);

/// An event at a later time: the end of a fault, or a step of an operator.
pub(super) type Deferred = Box<dyn FnOnce(&mut World)>;

/// Returns the links from the first members to the second ones.
fn one_way(from: &[MemberId], to: &[MemberId]) -> Vec<(MemberId, MemberId)> {
    let to_all = |one: &MemberId| -> Vec<(MemberId, MemberId)> {
        to.iter().map(|other| (*one, *other)).collect()
    };
    from.iter().flat_map(to_all).collect()
}

/// Returns the links between two groups of members, in both directions.
pub(super) fn both_ways(some: &[MemberId], others: &[MemberId]) -> Vec<(MemberId, MemberId)> {
    [one_way(some, others), one_way(others, some)].concat()
}

impl World {
    /// Injects a fault.
    pub(super) fn play(&mut self, fault: Fault) {
        self.record.fault(&format!("FAULT {fault:?}"));
        match fault {
            Fault::Crash(member, crash, after_calls, down) => {
                self.crash(member, crash, after_calls, down);
            }
            Fault::Pause(member, time) => {
                self.pause(member);
                let what = format!("pause of {member}");
                self.ends_later(time, what, move |world| world.resume(member));
            }
            Fault::Cut(from, to, time) => self.cut_for(both_ways(&from, &to), time),
            Fault::CutOneWay(from, to, time) => self.cut_for(one_way(&from, &to), time),
            Fault::ForgetConnections(one, other) => {
                if let Some(streams) = &self.streams {
                    streams.forget(one, other);
                }
            }
            Fault::Weather(weather, time) => {
                self.queue.links(|links| links.weather = weather);
                self.ends_later(time, "weather".to_owned(), |world| {
                    let calm = Weather::default();
                    world.queue.links(|links| links.weather = calm);
                });
            }
            Fault::Mysqld(member, fault) => self.play_at_server(member, fault),
            Fault::SlowDisk(member, delay, time) => {
                self.slow_down(member, delay);
                self.ends_later(time, format!("slow disk of {member}"), move |world| {
                    world.slow_down(member, Duration::ZERO);
                });
            }
            Fault::Lag(member, delay, time) => {
                let steps = Tick::steps(delay);
                self.queue.links(|links| links.lag(member, steps));
                self.ends_later(time, format!("lag of {member}"), move |world| {
                    world.queue.links(|links| links.lag(member, 0));
                });
            }
            Fault::FullDisk(member, room, time) => {
                let slot = self.slot(member);
                (slot.disk_fails, slot.full) = (true, true);
                slot.setup.disk.leave_room(room);
                self.ends_later(time, format!("full disk of {member}"), move |world| {
                    let slot = world.slot(member);
                    slot.full = false;
                    slot.setup.disk.set_capacity(None);
                });
            }
            Fault::BadCall(member, after_calls, fault) => {
                let slot = self.slot(member);
                slot.disk_fails = true;
                let call = slot.setup.disk.calls() + after_calls;
                slot.setup.disk.fail_call(call, fault);
            }
            Fault::Rot(member, place) => self.rot(member, place),
            Fault::RotTail(member, place, after, down) => {
                self.alone_with_the_leader(member, after, move |world| {
                    // In the meantime another disk may have rotted, so that the ring could not bear this loss.
                    if world.may_lose_bits().contains(&member) {
                        world.rot_tail(member, place, down);
                    }
                })
            }
            Fault::Wipe(member, Some(after), down) => {
                self.alone_with_the_leader(member, after, move |world| {
                    world.wipe(member, Some(down));
                })
            }
            Fault::Wipe(member, None, _) => self.wipe(member, None),
            Fault::Relapse(which, alone, time) => self.relapse_soon(which, alone, time),
            Fault::FalseAlarm(member, time) => {
                let term = self.latest_term();
                if self.false_alarms.may_come(member, term) {
                    self.alarm_falsely(member, time);
                }
            }
            Fault::FalseDeath(time) => self.false_death(time),
            Fault::Campaign(member) => self.campaign(member),
            Fault::Transfer(to) => self.transfer(to),
            Fault::Promote(to) => self.promote(to),
            Fault::SetPolicy(policy) => self.set_policy(policy),
            Fault::Add(member) => self.add(member),
            Fault::Remove(member) => self.remove(member),
            Fault::Purge(member, keep, waits) => self.purge(member, keep, waits),
        }
    }

    fn play_at_server(&mut self, member: MemberId, fault: MysqldFault) {
        let Some(host) = self.host(member).cloned() else {
            return;
        };
        match fault {
            MysqldFault::Kill => host.mysqld.kill(),
            MysqldFault::Terminate => host.mysqld.terminate(),
            MysqldFault::Pause(time) => {
                host.mysqld.pause();
                let what = format!("pause of the server of {member}");
                self.ends_later(time, what, move |_| host.mysqld.resume());
            }
            MysqldFault::LosePowerBehindAHangingMember(time) => {
                self.pause(member);
                self.ends_later(time, format!("hang of {member}"), move |world| {
                    let crash = faults::power_cut(&mut world.dice);
                    let down = millis(&mut world.dice, 5..2_000);
                    world.crash(member, crash, 0, down);
                });
            }
            MysqldFault::KillWithMember => {
                host.mysqld.kill();
                let down = millis(&mut self.dice, 5..1_000);
                self.play(Fault::crash(member, Crash::Kill, down));
            }
        }
    }

    pub(super) fn pause(&mut self, member: MemberId) {
        self.slot(member).pause();
    }

    pub(super) fn resume(&mut self, member: MemberId) {
        let now = self.now;
        self.slot(member).resume(now);
    }

    pub(super) fn cut_links(&self, pairs: &[(MemberId, MemberId)]) {
        self.queue
            .links(|links| pairs.iter().for_each(|(from, to)| links.cut(*from, *to)));
    }

    pub(super) fn restore_links_between(&self, pairs: &[(MemberId, MemberId)]) {
        let pairs = pairs.iter();
        self.queue
            .links(|links| pairs.for_each(|(from, to)| links.restore(*from, *to)));
    }

    pub(super) fn cut_for(&mut self, pairs: Vec<(MemberId, MemberId)>, time: Duration) {
        self.cut_links(&pairs);
        self.ends_later(time, format!("cut of {pairs:?}"), move |world| {
            world.restore_links_between(&pairs);
        });
    }

    /// Cuts a member off from all others for this time.
    pub(super) fn isolate(&mut self, member: MemberId, time: Duration) {
        let others = self.all_but(&[member]);
        self.play(Fault::Cut(vec![member], others, time));
    }

    fn alarm_falsely(&mut self, member: MemberId, time: Duration) {
        self.queue.links(|links| links.alarm(member, true));
        self.ends_later(time, format!("false alarm of {member}"), move |world| {
            world.queue.links(|links| links.alarm(member, false));
            let latest = world.latest_term();
            world.false_alarms.ends(member, latest);
        });
    }

    fn false_death(&mut self, time: Duration) {
        let Some(leader) = self.leader() else {
            return;
        };
        for member in self.all_but(&[leader]) {
            self.alarm_falsely(member, time);
        }
        self.isolate(leader, time);
    }

    fn relapse_soon(&mut self, which: u64, alone: Duration, time: Duration) {
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        let sets = view.voter_sets;
        // If a voter set needs the leader's vote, the fault has no effect.
        if sets.iter().any(|set| set.len() < 3) {
            return;
        }
        // After this time the candidate has waited for a lease, and campaigns repeatedly.
        let timers = self.shape.timers;
        let alone = match self.mutation.is_some_and(Mutation::concerns_primaries) {
            // The candidate must not lack entries that are written in that time.
            true => timers.lease + alone / 5,
            false => timers.longest_election() + alone,
        };
        // Only a running database member in all voter sets could be elected and serve.
        let fit = self.slots.iter().filter(|(id, slot)| {
            let serves = slot.is_running() && slot.setup.record.kind == MemberKind::Database;
            serves && **id != leader && sets.iter().all(|set| set.contains(id))
        });
        let fit: Vec<MemberId> = fit.map(|(id, _)| *id).collect();
        let Some(&candidate) = fit.get(which as usize % fit.len().max(1)) else {
            return;
        };
        self.play(Fault::Cut(vec![leader], vec![candidate], alone + time));
        self.ends_later(alone, format!("wait of {candidate}"), move |world| {
            world.relapse(leader, candidate, time);
        });
    }

    fn relapse(&mut self, leader: MemberId, candidate: MemberId, time: Duration) {
        let others = self.all_but(&[leader, candidate]);
        self.play(Fault::Cut(vec![leader], others.clone(), time));
        for member in others {
            let down = millis(&mut self.dice, 5..20);
            self.crash(member, Crash::Kill, 0, down);
        }
        self.ends_later(BACK_AGAIN, "restarts".to_owned(), move |world| {
            world.stand(candidate);
        });
    }

    /// Disconnects all members except this one and the leader for this time. Only these two have the commits of that time.
    fn alone_with_the_leader(
        &mut self,
        member: MemberId,
        time: Duration,
        then: impl FnOnce(&mut Self) + 'static,
    ) {
        let leader = self.leader();
        let is_one = |id: &MemberId| *id == member || Some(*id) == leader;
        let (pair, others): (Vec<_>, Vec<_>) = self.slots.keys().copied().partition(is_one);
        self.cut_for(both_ways(&pair, &others), time);
        self.ends_later(time, format!("time of {member} with the leader"), then);
    }

    fn crash(&mut self, member: MemberId, crash: Crash, after_calls: u64, down: Duration) {
        let stops = crash == Crash::Stop && self.scenario == Some(Scenario::MysqldOperations);
        let slot = self.slot(member);
        slot.down_for = Some(down);
        if stops {
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
        let what = format!("patience of {member}");
        self.ends_later(CRASH_PATIENCE, what, move |world| {
            let slot = world.slot(member);
            if slot.crash.is_some() {
                slot.fall();
            }
        });
    }

    /// Runs an event at a later time, without a record.
    pub(super) fn later(&mut self, time: Duration, event: impl FnOnce(&mut Self) + 'static) {
        self.deferred_number += 1;
        let at = self.now.after(time);
        self.deferred
            .insert((at, self.deferred_number), Box::new(event));
    }

    /// Ends a fault at a later time, and records its end.
    pub(super) fn ends_later(
        &mut self,
        time: Duration,
        what: String,
        event: impl FnOnce(&mut Self) + 'static,
    ) {
        self.later(time, move |world| {
            world.record.note(&format!("ENDS {what}"));
            event(world);
        });
    }

    /// Runs the later events that are due.
    pub(super) fn play_deferred(&mut self) {
        while let Some((&key, _)) = self.deferred.range(..=(self.now, u64::MAX)).next() {
            if let Some(event) = self.deferred.remove(&key) {
                event(self);
            }
        }
    }

    /// Starts the members that have been down long enough.
    pub(super) fn restart_fallen(&mut self) {
        let again: Tick = self.now.after(SHORT_STOP);
        let due = |slot: &Slot| slot.is_down() && slot.start_at.is_some_and(|at| at <= self.now);
        let starting = self.slots.iter().filter(|(_, slot)| due(slot));
        let starting: Vec<MemberId> = starting.map(|(id, _)| *id).collect();
        starting.into_iter().for_each(|id| self.change_timers(id));
        for slot in self.slots.values_mut().filter(|slot| slot.is_down()) {
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
