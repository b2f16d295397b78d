//! An adversary that watches: what has just happened is cut off before anybody hears of it.
//!
//! A siege is the worst that it does. A leader that has just appended a change of the membership gets nothing of it through: at
//! first only its streams stall, so that its heartbeats still tell what is committed, then it is cut off. When
//! somebody else leads, or narrows the quorum in its turn, that one's region is cut off and the first leader is let back to its
//! own: now two leaders each have a quorum of some membership, unless every step between memberships was made as it must be.

use std::time::Duration;

use raft_types::MemberId;

use super::World;
use super::playing::Undo;
use crate::faults::{self, Fault, Stress};
use crate::record::News;
use crate::tick::Tick;

/// Who is under siege, and until when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Siege {
    leader: MemberId,
    until: Tick,
}

/// How long the first leader is cut off when nobody follows it.
const PATIENCE: Duration = Duration::from_secs(4);

impl World {
    /// Strikes at what has just happened, or does not.
    pub(super) fn ambush(&mut self) {
        let news = self.record.take_news();
        if news.is_empty() {
            return;
        }
        let leader = self.leader();
        for news in news {
            // A follower that appends what it was sent is no news.
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

    /// Begins a siege, or goes on with one. Whether it did.
    fn besiege(&mut self, news: News) -> bool {
        let siege = self.siege.filter(|siege| siege.until > self.now);
        match (news, siege) {
            (News::Widens(member) | News::Narrows(member), None) => {
                // What narrows is where it hurts: its entry needs one quorum, the others still wait for two.
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
                self.post.links(|links| links.stall(member, true));
                let heartbeat = self.shape.timers.heartbeat;
                self.later(heartbeat * 3 / 2, Undo::CutOff(member));
                self.siege = Some(Siege {
                    leader: member,
                    until: self.now.after(PATIENCE),
                });
                true
            }
            // Rather when it takes its first step with the quorum than when it has just been elected: until it hears from a
            // quorum the engine lets it do nothing.
            (News::Leads(next), Some(siege)) if next != siege.leader && self.dice.u32(0..4) > 0 => {
                false
            }
            (News::Leads(next) | News::Narrows(next), Some(siege)) if next != siege.leader => {
                self.siege = None;
                self.let_back(siege.leader);
                let regions = self.regions();
                let home = regions.get(&next);
                let (from, to): (Vec<_>, Vec<_>) = self
                    .there()
                    .into_iter()
                    .partition(|member| regions.get(member) == home);
                let time = Duration::from_millis(self.dice.u64(1_000..4_000));
                self.play(Fault::Cut {
                    from,
                    to,
                    both: true,
                    time,
                });
                true
            }
            _ => false,
        }
    }

    /// Its heartbeats have told what is committed; now nothing gets through.
    pub(super) fn cut_off(&mut self, member: MemberId) {
        self.post.links(|links| links.stall(member, false));
        let besieged = self.siege.is_some_and(|siege| siege.leader == member);
        if besieged {
            let others = self.there().into_iter().filter(|other| *other != member);
            self.play(Fault::Cut {
                from: vec![member],
                to: others.collect(),
                both: true,
                time: PATIENCE,
            });
        }
    }

    /// The links of one member work again.
    fn let_back(&mut self, member: MemberId) {
        let others = self.there();
        self.post.links(|links| {
            links.stall(member, false);
            for other in others {
                links.open_up(member, other);
                links.open_up(other, member);
            }
        });
    }
}
