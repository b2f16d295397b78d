//! An adversary that reacts to events: it cuts off a member before others receive its news.
//!
//! A siege is its worst attack. A leader that has just appended a membership change cannot send it: at first only its streams stall, so
//! that its heartbeats still carry the commit index, then it is cut off. When another member leads, or narrows the quorum in turn, its
//! region is cut off, and the first leader rejoins its own. Now two leaders each have a quorum of some membership, unless every membership
//! step was made correctly.

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

/// The besieged member, and the end of the siege.
#[derive(Debug, Clone, Copy)]
pub(super) struct Siege {
    leader: MemberId,
    until: Tick,
}

/// How long the first leader is cut off without a successor.
const PATIENCE: Duration = Duration::from_secs(4);

impl World {
    /// Attacks a recent event, or not.
    pub(super) fn ambush(&mut self) {
        let news = self.record.take_news();
        if news.is_empty() {
            return;
        }
        let leader = self.leader();
        for news in news {
            // A follower's append of received entries is not news.
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

    /// Begins or continues a siege. Returns whether it did.
    fn besiege(&mut self, news: News) -> bool {
        let siege = self.siege.filter(|siege| siege.until > self.now);
        match (news, siege) {
            (News::Widens(member) | News::Narrows(member), None) => {
                // Narrowing is the most vulnerable: its entry needs one quorum, while the others still need two.
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
            // Preferably at its first step with the quorum, not right after its election: without contact to a quorum the engine does
            // nothing.
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

    /// Its heartbeats have sent the commit index; now nothing gets through.
    fn cut_off(&mut self, member: MemberId) {
        self.queue.links(|links| links.stall(member, false));
        if self.siege.is_some_and(|siege| siege.leader == member) {
            self.isolate(member, PATIENCE);
        }
    }

    /// Restores the links of one member.
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

// [`Scenario::Failovers`]: a leader fails, its successor fails, and a proxy fails. Each time, the current leader soon sends entries through
// proxies again: no state left by a failover disables proxying.
//
// [`Scenario::Failovers`]: crate::scenario::Scenario::Failovers

/// How long a killed member stays down.
const DOWN: Duration = Duration::from_secs(1);
/// Within this time after a member serves or a proxy fails, entries are proxied.
const SOON: Duration = Duration::from_secs(3);
/// Minimum number of entries; the first could be stragglers.
const ENOUGH: u64 = 5;

/// Payloads are proxied uncompressed by default.
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
            // A recently started member may have granted a lease before, and does not vote until it expires.
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

    /// Whether the others have a majority without this leader, in one voter set and in its own region.
    fn heirs_are_near(&self, leader: MemberId) -> bool {
        let regions = self.regions();
        let near = |id: &MemberId| regions.get(id) == regions.get(&leader) && self.runs(*id);
        let view = self.leading_view();
        view.is_some_and(|(_, view)| match view.voter_sets.as_slice() {
            [set] => set.len() >= 3 && set.iter().all(near),
            _ => false,
        })
    }

    /// Waits until a member leads a later term: before a heartbeat can be missed, for any heartbeat interval.
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

    /// A proxy with a session of the serving member.
    fn proxy(&self) -> Option<MemberId> {
        let (leader, _) = self.serving()?;
        let mut relayed = self.relayed().into_iter();
        let session = relayed.find(|session| session.from == leader)?;
        Some(session.proxy)
    }

    pub(super) fn kill(&mut self, member: MemberId) {
        self.play(Fault::crash(member, Crash::Kill, DOWN));
    }

    /// The serving member and its term.
    pub(super) fn serving(&self) -> Option<(MemberId, Term)> {
        let serving = self.slots.iter().filter_map(|(id, slot)| {
            let term = slot.process()?.outline().leadership.serving_term()?;
            Some((*id, term))
        });
        serving.max_by_key(|(_, term)| *term)
    }

    /// Waits until a later term than this one is served.
    pub(super) fn wait_for_leader(&mut self, before: Option<Term>) {
        let allowed = time_to_commit(&self.shape);
        self.wait_until("no member serves", allowed, |world| {
            world.serving().map(|(_, term)| term) > before
        });
    }

    /// Waits until the serving member sends entries through proxies continuously.
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

    /// Entries that a member has proxied since its start.
    fn proxied_by(&self, leader: MemberId) -> u64 {
        let sent = self
            .process(leader)
            .map(|process| process.traffic().members);
        let sent = sent.into_iter().flatten();
        sent.map(|(_, sent)| sent.proxied_entries).sum()
    }
}

// [`Scenario::Learners`]: a leader keeps only members without a vote. It is cut off from the other voters of its quorum, but reaches all
// others. Those voters elect a new leader, and the first one loses power. Its acknowledgements in between would be lost, so there must be
// none: members without a vote do not count for a commit.
//
// [`Scenario::Learners`]: crate::scenario::Scenario::Learners

/// Every member could lead, so that the disconnected ones elect a leader, and entries take direct routes.
pub(super) fn without_proxies(shape: &mut Shape) {
    shape.proxies.mode = proxy::ProxyMode::Off;
    shape.with_databases_only();
}

impl World {
    /// The leader keeps only learners for a while, then loses power.
    pub(super) fn leave_with_learners(&mut self) {
        let calm = millis(&mut self.dice, 1_000..3_000);
        self.steps(calm);
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        // While the quorum moves, another set may decide.
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
