//! A leader's data about the members to which it sends entries. It has their progress, the times of their answers, the failures of proxies,
//! and the routes. The leader's clients share it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use consensus::log_probe::{Answered, Departure};
use raft_types::{MemberId, MemberRecord, Region, lock};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::health::{Blamed, Failure, Health, Way};
use crate::policy::{ProxyMode, ProxyOptions};
use crate::routes::{Candidate, Route, Scene};

/// How long a chosen route is kept without an event. The leader checks before every request.
const CHOSEN_FOR: Duration = Duration::from_millis(20);

/// Returns the current record of a member of the ring.
pub type Records = Arc<dyn Fn(MemberId) -> Option<MemberRecord> + Send + Sync>;

/// A leader's data about its members and their routes. Clones are the same table.
#[derive(Clone)]
pub struct RouteTable(Arc<Shared>);

struct Shared {
    own: MemberId,
    own_name: String,
    own_region: Region,
    options: ProxyOptions,
    /// A member that has not answered for this long is not used as a proxy.
    heard_within: Duration,
    /// Returns the ring's records. Set when the member takes part in the ring.
    records: OnceLock<Records>,
    state: Mutex<State>,
    /// Notified after an event, because another route may then be better.
    happened: watch::Sender<()>,
    traffic: Traffic,
    /// Changes when a part of an entry arrives.
    parts: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    members: BTreeMap<MemberId, Known>,
    /// The failures of links from a proxy to a member.
    links: BTreeMap<(MemberId, MemberId), Health>,
    /// The chosen proxy of each region.
    proxies: BTreeMap<Region, MemberId>,
    routes: BTreeMap<MemberId, Chosen>,
}

/// A route, and the time until which it is kept.
#[derive(Debug)]
struct Chosen {
    route: Arc<Route>,
    until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Known {
    /// The member's record when this leader began to send to it.
    record: MemberRecord,
    held: Option<u64>,
    answered: Option<Instant>,
    health: Health,
    /// The newest request that this leader itself sends to the member in pieces: its last entry, and its progress.
    departing: Option<(u64, Departure)>,
    /// The last entry of a request that the member's proxy received too early.
    waits_for: Option<u64>,
}

/// The route of a member, for status output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteView {
    /// The member that receives the entries.
    pub member: MemberId,
    /// The proxies, beginning with the one next to the leader; empty if the leader sends directly.
    pub through: Vec<MemberId>,
    /// The reason, if there is no proxy.
    pub because: Option<String>,
}

impl RouteTable {
    /// Creates the table of the member with this number and record. A member that has not answered for `heard_within` is not used as a
    /// proxy.
    pub fn new(
        own: MemberId,
        record: &MemberRecord,
        options: ProxyOptions,
        heard_within: Duration,
    ) -> Self {
        Self(Arc::new(Shared {
            own,
            own_name: record.name.clone(),
            own_region: record.region.clone(),
            options,
            heard_within,
            records: OnceLock::new(),
            state: Mutex::default(),
            happened: watch::Sender::default(),
            traffic: Traffic::default(),
            parts: AtomicU64::new(0),
        }))
    }

    /// Sets the source of the ring's records, when the member takes part in its ring. With it, a member's new address or region is used
    /// while the leader sends to it.
    pub fn know_the_ring(&self, records: Records) {
        // The source is set once per process.
        let _ = self.0.records.set(records);
    }

    /// Returns how payloads are sent over proxies.
    pub fn options(&self) -> &ProxyOptions {
        &self.0.options
    }

    /// Returns the traffic by member and by route.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// Returns the last chosen routes.
    pub fn routes(&self) -> Vec<RouteView> {
        let state = lock(&self.0.state);
        let views = state.routes.iter().map(|(member, chosen)| RouteView {
            member: *member,
            through: chosen.route.proxies().to_vec(),
            because: match &*chosen.route {
                Route::Direct(because) => Some(because.to_string()),
                Route::Through(_) => None,
            },
        });
        views.collect()
    }

    /// Begins to send to a member in a new leadership. Data of an earlier leadership is dropped.
    pub(crate) fn begin(&self, member: MemberId, record: &MemberRecord) {
        let mut state = lock(&self.0.state);
        state.links.retain(|(_, target), _| *target != member);
        let known = Known {
            record: record.clone(),
            ..Known::default()
        };
        state.members.insert(member, known);
        self.happened(&mut state);
    }

    /// Returns true if routes can change at all.
    pub(crate) fn chooses(&self) -> bool {
        self.0.options.mode != ProxyMode::Off
    }

    /// Returns a channel that is notified by events after which another route may be better. The passage of time is not reported.
    pub(crate) fn happenings(&self) -> watch::Receiver<()> {
        self.0.happened.subscribe()
    }

    fn happened(&self, state: &mut State) {
        for chosen in state.routes.values_mut() {
            chosen.until = None;
        }
        self.0.happened.send_replace(());
    }

    /// Returns the current route to a member.
    pub(crate) fn route(&self, target: MemberId, now: Instant) -> Arc<Route> {
        let state = &mut *lock(&self.0.state);
        match state.routes.get(&target) {
            Some(chosen) if chosen.until.is_some_and(|until| now < until) => chosen.route.clone(),
            _ => self.choose(state, target, now),
        }
    }

    fn choose(&self, state: &mut State, target: MemberId, now: Instant) -> Arc<Route> {
        let shared = &self.0;
        let members: BTreeMap<_, _> = state
            .members
            .iter()
            .map(|(id, known)| {
                let record = shared.newest(*id, known);
                (*id, known.candidate(record, now, shared.heard_within))
            })
            .collect();
        let apart: BTreeSet<_> = state
            .links
            .iter()
            .filter(|(_, health)| health.trouble(now).is_some())
            .map(|(link, _)| *link)
            .collect();
        let scene = Scene {
            own: shared.own,
            own_region: &shared.own_region,
            own_name: &shared.own_name,
            mode: &shared.options.mode,
            max_hops: shared.options.max_hops,
            members: &members,
            apart: &apart,
        };
        if let Some(member) = members.get(&target) {
            let kept = state.proxies.get(&member.region).copied();
            match scene.proxy_of(&member.region, kept) {
                Some(proxy) => state.proxies.insert(member.region.clone(), proxy),
                None => state.proxies.remove(&member.region),
            };
        }
        let route = scene.route(target, &state.proxies);
        let until = Some(now + CHOSEN_FOR);
        let route = match state.routes.remove(&target) {
            Some(chosen) if *chosen.route == route => chosen.route,
            // The text of a reason may change, although the route does not.
            Some(chosen) if chosen.route.proxies() == route.proxies() => Arc::new(route),
            _ => {
                tracing::debug!(member = %target, ?route, "entries take another route");
                Arc::new(route)
            }
        };
        let chosen = route.clone();
        state.routes.insert(target, Chosen { route, until });
        chosen
    }

    /// Records that a member answered an append request of this leader, over any route.
    pub(crate) fn answered(&self, member: MemberId, answered: &Answered, now: Instant) {
        let state = &mut *lock(&self.0.state);
        let (Ok(matching), Some(known)) = (&answered.result, state.members.get_mut(&member)) else {
            return;
        };
        let held = matching.map_or(0, |matching| matching.index + 1);
        let first = known.held.is_none();
        known.held = known.held.max(Some(held));
        known.answered = Some(now);
        if first {
            self.happened(state);
        }
    }

    /// Returns true if a member has not acknowledged the entry with this index yet.
    pub(crate) fn lacks(&self, member: MemberId, index: u64) -> bool {
        let state = lock(&self.0.state);
        let held = state.members.get(&member).and_then(|known| known.held);
        held.is_none_or(|held| held <= index)
    }

    /// Records that a request that ends with this entry will be sent to a member in pieces.
    pub(crate) fn departs(&self, member: MemberId, last: u64, departure: &Departure) {
        if let Some(known) = lock(&self.0.state).members.get_mut(&member) {
            known.departing = Some((last, departure.clone()));
        }
    }

    /// Returns the progress of the entry with this index. If the members differ, returns the state of the member that has received least.
    pub(crate) fn way_to_all(&self, members: &[MemberId], index: u64) -> Way {
        let ways = members.iter().map(|member| self.way_to(*member, index));
        ways.fold(Way::There, Way::further_back)
    }

    /// Returns the progress of the entry to one member.
    fn way_to(&self, member: MemberId, index: u64) -> Way {
        let state = lock(&self.0.state);
        let Some(known) = state.members.get(&member) else {
            return Way::Leaves(0);
        };
        match &known.departing {
            _ if known.held.is_some_and(|held| held > index) => Way::There,
            Some((last, out)) if *last >= index && out.is_over() => Way::HasLeft,
            // These may be pieces of an earlier entry. Then this entry is sent after it.
            Some((_, out)) => Way::Leaves(out.pieces()),
            None => Way::Leaves(0),
        }
    }

    /// Delays the request that ends with this entry, until the proxy of `target` has acknowledged the entry.
    pub(crate) fn wait_for(&self, target: MemberId, last: u64) {
        if let Some(known) = lock(&self.0.state).members.get_mut(&target) {
            known.waits_for = Some(last);
        }
    }

    /// Returns the last entry of the request that is delayed until that acknowledgement.
    pub(crate) fn waits_for(&self, target: MemberId) -> Option<u64> {
        lock(&self.0.state).members.get(&target)?.waits_for
    }

    /// Records that a part of an entry arrived from a leader, if the entry is larger than a message.
    pub(crate) fn part_arrives(&self) {
        // No ordering is needed: a reader that gets an old number waits once more.
        self.0.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a counter that changes when parts of entries arrive.
    pub(crate) fn parts(&self) -> u64 {
        self.0.parts.load(Ordering::Relaxed)
    }

    /// Records that a member answered a heartbeat.
    pub(crate) fn heard(&self, member: MemberId, now: Instant) {
        if let Some(known) = lock(&self.0.state).members.get_mut(&member) {
            known.answered = Some(now);
        }
    }

    /// Records a failure on the route through these proxies to a member.
    pub(crate) fn failed(
        &self,
        proxies: &[MemberId],
        target: MemberId,
        failure: &Failure,
        now: Instant,
    ) {
        if let Some(proxy) = proxies.first() {
            self.0.traffic.fell_back(*proxy, failure);
        }
        let state = &mut *lock(&self.0.state);
        for blamed in failure.blamed(proxies, target) {
            let health = match blamed {
                Blamed::Proxy(proxy) => {
                    let known = state.members.get_mut(&proxy);
                    known.map(|known| &mut known.health)
                }
                Blamed::Link(from, to) => Some(state.links.entry((from, to)).or_default()),
            };
            if health.is_some_and(|health| health.failed(now, failure.clone())) {
                tracing::info!(?blamed, member = %target, %failure, "a proxy is not used for a while");
            }
        }
        self.happened(state);
    }

    /// Returns the record of a member of the ring, even if this member sends nothing to it.
    pub(crate) fn record_in_the_ring(&self, member: MemberId) -> Option<MemberRecord> {
        self.0.records.get()?(member)
    }

    /// Returns the current record of a member to which this one sends.
    pub(crate) fn record(&self, member: MemberId) -> Option<MemberRecord> {
        let state = lock(&self.0.state);
        Some(self.0.newest(member, state.members.get(&member)?))
    }
}

impl Shared {
    /// Returns a member's current record. Before the ring's records are available, returns the record from the time when sending to it
    /// began.
    fn newest(&self, member: MemberId, known: &Known) -> MemberRecord {
        let newest = self.records.get().and_then(|records| records(member));
        newest.unwrap_or_else(|| known.record.clone())
    }
}

impl Known {
    fn candidate(&self, record: MemberRecord, now: Instant, heard_within: Duration) -> Candidate {
        let silent = self
            .answered
            .map(|answered| now.saturating_duration_since(answered))
            .filter(|silent| *silent > heard_within);
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let unfit = match (self.health.trouble(now), silent) {
            (Some((failure, left)), _) => {
                Some(format!("{failure}; tried again in {}", seconds(left)))
            }
            (None, silent) => {
                silent.map(|silent| format!("it has not answered for {}", seconds(silent)))
            }
        };
        Candidate {
            name: record.name,
            region: record.region,
            kind: record.kind,
            held: self.held,
            unfit,
        }
    }
}

// Network traffic for the entries of the log, counted by member and by route. The counters are payload bytes that were sent, payload bytes
// that a proxy saved, and how often a proxy was no longer used.

/// Counters since the process started.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Counted>);

/// Counters since the process started: entries sent directly, over proxies, and for other leaders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// The traffic to each member to which entries were sent.
    pub members: BTreeMap<MemberId, Sent>,
    /// How often a proxy was no longer used, by proxy and reason.
    pub fallbacks: BTreeMap<(MemberId, &'static str), u64>,
    /// What this member forwarded for other leaders.
    pub relayed: Relayed,
}

/// Traffic to one member, in bytes of the entries' payloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Entries that this member sent directly, with their payloads.
    pub direct_entries: u64,
    /// Bytes of the payloads of these entries.
    pub direct_bytes: u64,
    /// Entries that were sent as op ids, over a proxy.
    pub proxied_entries: u64,
    /// Payload bytes that this member did not send, because a proxy had them.
    pub spared_bytes: u64,
}

/// What this member forwarded for other leaders since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Sessions that were requested.
    pub sessions: u64,
    /// Entries that were restored and forwarded.
    pub entries: u64,
    /// Bytes of the payloads of these entries.
    pub bytes: u64,
    /// Sessions that ended because this member lacked an entry.
    pub missing: u64,
    /// Sessions that ended because the next member could not be called.
    pub cannot_call: u64,
    /// Sessions that were refused when they were requested.
    pub refused: u64,
}

impl Traffic {
    /// Returns a copy of all counters.
    pub fn counted(&self) -> Counted {
        lock(&self.0).clone()
    }

    pub(crate) fn direct(&self, member: MemberId, entries: usize, bytes: usize) {
        let mut counted = lock(&self.0);
        let sent = counted.members.entry(member).or_default();
        sent.direct_entries += entries as u64;
        sent.direct_bytes += bytes as u64;
    }

    pub(crate) fn proxied(&self, member: MemberId, entries: usize, bytes: usize) {
        let mut counted = lock(&self.0);
        let sent = counted.members.entry(member).or_default();
        sent.proxied_entries += entries as u64;
        sent.spared_bytes += bytes as u64;
    }

    pub(crate) fn fell_back(&self, proxy: MemberId, failure: &Failure) {
        let mut counted = lock(&self.0);
        let reason = (proxy, failure.label());
        *counted.fallbacks.entry(reason).or_default() += 1;
    }

    pub(crate) fn relayed(&self, change: impl FnOnce(&mut Relayed)) {
        change(&mut lock(&self.0).relayed);
    }
}

#[cfg(test)]
mod tests;
