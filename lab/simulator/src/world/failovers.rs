//! An adversary that reacts to events: after an event it cuts a member off before the other members learn of the event.
//!
//! Its strongest attack is a siege. A leader that has just appended a membership cannot send it. At first only the leader's streams stall,
//! so that its heartbeats still send the commit index; then the leader is cut off. When another member leads, or narrows the quorum, the
//! region of that member is cut off, and the first leader's links are restored. Now two leaders each have a quorum of some membership,
//! unless each step of the membership was correct.

use std::time::Duration;

use consensus::Term;
use proxy::{ProxyMode, ProxyOptions};
use raft_types::MemberId;
use testkit::disk::Survival;

use crate::dice::{millis, pick_some};
use crate::faults;
use crate::faults::{Crash, Fault, Stress};
use crate::mutation::Mutation;
use crate::network::StandIn;
use crate::record::News;
use crate::shape::Shape;
use crate::tick::Tick;
use crate::world::World;
use crate::world::healing::time_to_commit;

/// The leader that is under siege, and when the siege ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Siege {
    leader: MemberId,
    until: Tick,
}

/// How long the leader is cut off if no other member leads.
const PATIENCE: Duration = Duration::from_secs(4);

impl World {
    /// Reacts to recent events, with some probability.
    pub(super) fn ambush(&mut self) {
        let news = self.record.take_news();
        if news.is_empty() {
            return;
        }
        let leader = self.leader();
        for news in news {
            // Only a leader's own append counts, not a follower's append of received entries.
            if let News::Widens(member) | News::Narrows(member) = news
                && leader != Some(member)
            {
                continue;
            }
            if self.loses_what_narrows(news) || self.besiege(news) {
                continue;
            }
            let view = self.view();
            if let Some(fault) = faults::ambush(news, &view, self.intensity, &mut self.dice) {
                self.play(fault);
            }
        }
    }

    /// Begins or continues a siege. Returns whether the event was used.
    fn besiege(&mut self, news: News) -> bool {
        let siege = self.siege.filter(|siege| siege.until > self.now);
        match (news, siege) {
            (News::Widens(member) | News::Narrows(member), None) => {
                // A narrowing is attacked more often. Its entry needs one quorum, while the other members still need two.
                let chance = match news {
                    News::Narrows(_) => 2,
                    _ => 10,
                };
                let strikes =
                    self.intensity.stress == Stress::Moves && self.dice.u32(0..chance) == 0;
                if !strikes {
                    return false;
                }
                self.record.note(&format!("SIEGE of member {member}"));
                self.queue.links(|links| links.stall(member, true));
                let heartbeat = self.shape.timers.heartbeat;
                self.ends_later(
                    heartbeat * 3 / 2,
                    format!("stall of {member}"),
                    move |world| {
                        world.cut_off(member);
                    },
                );
                self.siege = Some(Siege {
                    leader: member,
                    until: self.now.after(PATIENCE),
                });
                true
            }
            // The region of the next leader is preferably cut off at its first quorum step, not right after its election. Without contact
            // to a quorum, openraft would not do anything.
            (News::Leads(next), Some(siege)) if next != siege.leader && self.dice.u32(0..4) > 0 => {
                false
            }
            (News::Leads(next) | News::Narrows(next), Some(siege)) if next != siege.leader => {
                self.siege = None;
                self.let_back(siege.leader);
                let regions = self.regions();
                let home = regions.get(&next);
                let is_at_home = |member: &MemberId| regions.get(member) == home;
                let (from, to) = self.there().into_iter().partition(is_at_home);
                let time = millis(&mut self.dice, 1_000..4_000);
                self.play(Fault::Cut(from, to, time));
                true
            }
            _ => false,
        }
    }

    /// Cuts the leader off, after its heartbeats have sent the commit index.
    fn cut_off(&mut self, member: MemberId) {
        self.queue.links(|links| links.stall(member, false));
        if self.siege.is_some_and(|siege| siege.leader == member) {
            self.isolate(member, PATIENCE);
        }
    }

    /// Restores all links of one member.
    fn let_back(&mut self, member: MemberId) {
        let others = self.there();
        self.queue.links(|links| {
            links.stall(member, false);
            for other in others {
                links.open_up(member, other);
                links.open_up(other, member);
            }
        });
    }
}

// [`Scenario::Failovers`]: a leader fails, the next leader fails, and then a proxy fails. After each failure, the current leader must use
// proxies again within `SOON`. So no state of a failover disables proxies.
//
// [`Scenario::Failovers`]: crate::scenario::Scenario::Failovers

/// How long a killed member is down.
const DOWN: Duration = Duration::from_secs(1);
/// Time limit until entries are sent through proxies, after a member began to serve or a proxy failed.
const SOON: Duration = Duration::from_secs(3);
/// Number of entries that must be sent through proxies. The first ones may have been sent before.
const ENOUGH: u64 = 5;

/// Enables proxies in each region, with the default options.
pub(super) fn with_proxies(shape: &mut Shape) {
    shape.proxies = ProxyOptions {
        mode: ProxyMode::Region,
        ..ProxyOptions::default()
    };
}

impl World {
    pub(super) fn failovers(&mut self) {
        self.wait_for_leader(None);
        self.wait_for_proxies();
        let lease = self.shape.timers.lease;
        let mut killed = None;
        for _ in 0..2 {
            let Some((leader, term)) = self.serving() else {
                return;
            };
            // A member that was started recently does not vote for the length of a lease, because it may have granted one before.
            let all_vote = killed.is_none_or(|at| self.now - at > DOWN + 2 * lease);
            let near = all_vote && self.heirs_are_near(leader);
            self.kill(leader);
            killed = Some(self.now);
            if near {
                self.replaced_immediately(term);
            }
            self.wait_for_leader(Some(term));
            self.wait_for_proxies();
        }
        if let Some(proxy) = self.proxy() {
            self.kill(proxy);
        }
        self.wait_for_proxies();
    }

    /// Returns whether the other members of the leader's own region can elect a leader immediately: there is one voter set, all its members
    /// are in that region, and they run.
    fn heirs_are_near(&self, leader: MemberId) -> bool {
        let regions = self.regions();
        let near = |id: &MemberId| regions.get(id) == regions.get(&leader) && self.runs(*id);
        let view = self.leading_view();
        view.is_some_and(|(_, view)| match view.voter_sets.as_slice() {
            [set] => set.len() >= 3 && set.iter().all(near),
            _ => false,
        })
    }

    /// Waits until a member leads in a later term. This must happen within a lease, so before missed heartbeats could cause an election.
    fn replaced_immediately(&mut self, before: Term) {
        let (start, lease) = (self.now, self.shape.timers.lease);
        self.wait_until(
            "no leader is elected after the death of a process",
            lease,
            |world| world.latest_term() > Some(before),
        );
        self.record.note(&format!(
            "FOLLOWED within {:?}, lease {lease:?}",
            self.now - start
        ));
    }

    /// Returns a proxy that the serving member uses.
    fn proxy(&self) -> Option<MemberId> {
        let (leader, _) = self.serving()?;
        let mut relayed = self.relayed().into_iter();
        let session = relayed.find(|session| session.from == leader)?;
        Some(session.proxy)
    }

    pub(super) fn kill(&mut self, member: MemberId) {
        self.play(Fault::crash(member, Crash::Kill, DOWN));
    }

    /// Returns the serving member and its term.
    pub(super) fn serving(&self) -> Option<(MemberId, Term)> {
        let serving = self.slots.iter().filter_map(|(id, slot)| {
            let term = slot.process()?.outline().leadership.serving_term()?;
            Some((*id, term))
        });
        serving.max_by_key(|(_, term)| *term)
    }

    /// Waits until a member serves in a later term than `before`.
    pub(super) fn wait_for_leader(&mut self, before: Option<Term>) {
        let allowed = time_to_commit(&self.shape);
        self.wait_until("no member serves", allowed, |world| {
            world.serving().map(|(_, term)| term) > before
        });
    }

    /// Waits until the serving member has sent `ENOUGH` further entries through proxies, and still uses a proxy.
    fn wait_for_proxies(&mut self) {
        let mut begun = None;
        self.wait_until(
            "the serving member sends nothing through proxies",
            SOON,
            |world| {
                let serving = world.serving().map(|(leader, _)| leader);
                let sent = serving.map_or(0, |leader| world.proxied_by(leader));
                match begun {
                    Some((leader, before)) if leader == serving => {
                        sent >= before + ENOUGH && world.proxy().is_some()
                    }
                    _ => {
                        begun = Some((serving, sent));
                        false
                    }
                }
            },
        );
    }

    /// Returns the number of entries that a member has sent through proxies since its start.
    fn proxied_by(&self, leader: MemberId) -> u64 {
        let sent = self
            .process(leader)
            .map(|process| process.traffic().members);
        let sent = sent.into_iter().flatten();
        sent.map(|(_, sent)| sent.proxied_entries).sum()
    }
}

// [`Scenario::Learners`]: only members without a vote remain connected to the leader. It is cut off from the other voters of its quorum.
// These voters elect a new leader, and the first leader loses its power. Any acknowledgement of the first leader in that time would be
// lost. So there must be none: members without a vote do not count for a commit.
//
// [`Scenario::Learners`]: crate::scenario::Scenario::Learners

/// Disables proxies, and makes every member able to lead. So the disconnected voters can elect a leader, and entries are sent directly.
pub(super) fn without_proxies(shape: &mut Shape) {
    shape.proxies.mode = proxy::ProxyMode::Off;
    shape.with_databases_only();
}

impl World {
    /// Leaves the leader connected only to members without a vote for some time, and then cuts its power.
    pub(super) fn leave_with_learners(&mut self) {
        let calm = millis(&mut self.dice, 1_000..3_000);
        self.steps(calm);
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        // During a quorum move, another voter set may decide.
        let [set] = view.voter_sets.as_slice() else {
            return;
        };
        if !set.contains(&leader) || set.len() < 3 {
            return;
        }
        let learners = self.slots.iter().filter(|(id, slot)| {
            view.member(**id).is_some() && !set.contains(id) && slot.is_running()
        });
        let learners: Vec<MemberId> = learners.map(|(id, _)| *id).collect();
        let Some(learner) = pick_some(&mut self.dice, &learners) else {
            return;
        };
        let mut voters = set.clone();
        voters.remove(&leader);
        let alone = self.shape.timers.lease * 3 + millis(&mut self.dice, 0..2_000);
        let others = voters.iter().copied().collect();
        self.play(Fault::Cut(vec![leader], others, alone));
        if self.mutation == Some(Mutation::CountALearner) {
            let stand_in = StandIn {
                leader,
                voters,
                learner,
            };
            self.queue.links(|links| links.stand_in = Some(stand_in));
        }
        self.steps(alone);
        self.queue.links(|links| links.stand_in = None);
        let crash = Crash::PowerCut(Survival::Everything);
        let down = millis(&mut self.dice, 500..3_000);
        self.play(Fault::crash(leader, crash, down));
    }
}
