//! [`Scenario::Failovers`]: a leader dies, its successor dies, and a proxy dies. Each time, and soon, whoever leads sends entries
//! through proxies again: nothing that a failover leaves behind turns proxying off.
//!
//! [`Scenario::Failovers`]: crate::scenario::Scenario::Failovers

use std::time::Duration;

use consensus::Term;
use proxy::{ProxyMode, ProxyOptions};
use raft_types::MemberId;

use super::World;
use super::healing::time_to_commit;
use crate::event::Event;
use crate::faults::{Crash, Fault};
use crate::shape::Shape;

/// How long a member that was killed stays away.
const DOWN: Duration = Duration::from_secs(1);
/// Within this time of serving, or of the death of a proxy, entries go through proxies.
const SOON: Duration = Duration::from_secs(3);
/// So many entries; the first could be stragglers.
const ENOUGH: u64 = 5;

/// Payloads are proxied as they are where nobody has chosen otherwise.
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
        for _ in 0..2 {
            let Some((leader, term)) = self.serving() else {
                return;
            };
            self.kill(leader);
            self.wait_for_leader(Some(term));
            self.wait_for_proxies();
        }
        if let Some(proxy) = self.proxy() {
            self.kill(proxy);
        }
        self.wait_for_proxies();
    }

    /// A proxy that whoever serves is in a session with.
    fn proxy(&self) -> Option<MemberId> {
        let (leader, _) = self.serving()?;
        let mut relayed = self.relayed().into_iter();
        let session = relayed.find(|session| session.from == leader)?;
        Some(session.proxy)
    }

    pub(super) fn kill(&mut self, member: MemberId) {
        self.play(Fault::Crash {
            member,
            crash: Crash::Kill,
            after_calls: 0,
            down: DOWN,
        });
    }

    /// Who serves clients, and in which term.
    pub(super) fn serving(&self) -> Option<(MemberId, Term)> {
        let serving = self.slots.iter().filter_map(|(id, slot)| {
            let term = slot.process()?.outline().leadership.serving_term()?;
            Some((*id, term))
        });
        serving.max_by_key(|(_, term)| *term)
    }

    /// Until a later term than this one is served.
    pub(super) fn wait_for_leader(&mut self, before: Option<Term>) {
        let (start, allowed) = (self.now, time_to_commit(&self.shape));
        while self.goes_on() && self.serving().map(|(_, term)| term) <= before {
            if self.now - start > allowed {
                let words = format!("nobody serves within {allowed:?}");
                self.record.saw(&Event::Stuck { words });
            }
            self.step();
        }
    }

    /// Until whoever serves has sent entries through proxies, and goes on with it.
    fn wait_for_proxies(&mut self) {
        let start = self.now;
        let mut begun = None;
        while self.goes_on() {
            let serving = self.serving().map(|(leader, _)| leader);
            let sent = serving.map_or(0, |leader| self.proxied_by(leader));
            match begun {
                Some((leader, before)) if leader == serving => {
                    if sent >= before + ENOUGH && self.proxy().is_some() {
                        return;
                    }
                }
                _ => begun = Some((serving, sent)),
            }
            if self.now - start > SOON {
                let words = format!("{serving:?} serves and sends nothing through proxies");
                self.record.saw(&Event::Stuck { words });
            }
            self.step();
        }
    }

    /// How many entries a member has sent through proxies since it was started.
    fn proxied_by(&self, leader: MemberId) -> u64 {
        let process = self.slots.get(&leader).and_then(|slot| slot.process());
        let sent = process.map(|process| process.traffic().members);
        let sent = sent.into_iter().flatten();
        sent.map(|(_, sent)| sent.proxied_entries).sum()
    }
}
