//! An adversary that watches: what has just happened is cut off before anybody hears of it.
//!
//! A siege is the worst that it does. A leader that has just appended a change of the membership is cut off with it. When
//! somebody else leads, that one's region is cut off in its turn and the first leader is let back to its own: now two leaders
//! each have a quorum of some membership, unless every step between memberships was made as it must be.

use std::time::Duration;

use raft_types::MemberId;

use super::World;
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
        for news in news {
            if self.besiege(news) {
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
            (News::ChangesMembership(member), None) => {
                let likely = self.intensity.stress == Stress::Moves && self.dice.bool();
                if !likely || self.leader() != Some(member) {
                    return false;
                }
                self.record.note(&format!("SIEGE of member {member}"));
                let others = self.there().into_iter().filter(|other| *other != member);
                self.play(Fault::Cut {
                    from: vec![member],
                    to: others.collect(),
                    both: true,
                    time: PATIENCE,
                });
                self.siege = Some(Siege {
                    leader: member,
                    until: self.now.after(PATIENCE),
                });
                true
            }
            (News::Leads(next), Some(siege)) if next != siege.leader => {
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

    /// The links of one member work again.
    fn let_back(&mut self, member: MemberId) {
        let others = self.there();
        self.post.links(|links| {
            for other in others {
                links.open_up(member, other);
                links.open_up(other, member);
            }
        });
    }
}
