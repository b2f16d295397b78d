//! A leader's data about the members to which it sends, shared by its clients to them: their progress, the time of their answers,
//! the failures of proxies, and the route of each member.

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

/// How long a chosen route is kept without an event: a leader checks before every request.
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
    /// A member that has not answered for so long does not forward.
    heard_within: Duration,
    /// Source of the ring's records, once the member takes part.
    records: OnceLock<Records>,
    state: Mutex<State>,
    /// An event occurred after which other routes may be better.
    happened: watch::Sender<()>,
    traffic: Traffic,
    /// Changes with every arriving part of an entry.
    parts: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    members: BTreeMap<MemberId, Known>,
    /// Failures between a proxy and a member.
    links: BTreeMap<(MemberId, MemberId), Health>,
    /// The proxy that was chosen for each region.
    proxies: BTreeMap<Region, MemberId>,
    routes: BTreeMap<MemberId, Chosen>,
}

/// A route, and until when it is kept.
#[derive(Debug)]
struct Chosen {
    route: Arc<Route>,
    until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Known {
    /// Its record when sending to it began.
    record: MemberRecord,
    held: Option<u64>,
    answered: Option<Instant>,
    health: Health,
    /// The last entry of the newest request that this leader itself sends it in pieces, and the progress of that.
    departing: Option<(u64, Departure)>,
    /// The last entry of the request that its proxy received too early.
    waits_for: Option<u64>,
}

/// The route of a member, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteView {
    /// The member that the entries are for.
    pub member: MemberId,
    /// The proxies, the one next to the leader first; none: from the leader.
    pub through: Vec<MemberId>,
    /// The reason, where there is no proxy.
    pub because: Option<String>,
}

impl RouteTable {
    /// For the member with this number and record. A member that has not answered for `heard_within` does not forward.
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

    /// The member takes part in its ring, and `records` returns that ring's records: a member may move to another address or region
    /// while the leader sends to it.
    pub fn know_the_ring(&self, records: Records) {
        // Set once per process.
        let _ = self.0.records.set(records);
    }

    /// How payloads are to be proxied.
    pub fn options(&self) -> &ProxyOptions {
        &self.0.options
    }

    /// Traffic by member and by route.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// The routes chosen last.
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

    /// A leadership begins to send to a member: data of an earlier one does not count.
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

    /// Whether routes can change at all.
    pub(crate) fn chooses(&self) -> bool {
        self.0.options.mode != ProxyMode::Off
    }

    /// Changes on an event after which another route may be better. The passage of time alone is not
    /// reported.
    pub(crate) fn happenings(&self) -> watch::Receiver<()> {
        self.0.happened.subscribe()
    }

    fn happened(&self, state: &mut State) {
        for chosen in state.routes.values_mut() {
            chosen.until = None;
        }
        self.0.happened.send_replace(());
    }

    /// The current route to a member.
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
            // The text of a reason changes with the time.
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

    /// A member answered an append of this leader, over any route.
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

    /// True if a member has not acknowledged the entry with this index yet.
    pub(crate) fn lacks(&self, member: MemberId, index: u64) -> bool {
        let state = lock(&self.0.state);
        let held = state.members.get(&member).and_then(|known| known.held);
        held.is_none_or(|held| held <= index)
    }

    /// A request that ends with this entry is about to be sent to a member in pieces.
    pub(crate) fn departs(&self, member: MemberId, last: u64, departure: &Departure) {
        if let Some(known) = lock(&self.0.state).members.get_mut(&member) {
            known.departing = Some((last, departure.clone()));
        }
    }

    /// The progress of the entry with this index, for those of several members that have least of it.
    pub(crate) fn way_to_all(&self, members: &[MemberId], index: u64) -> Way {
        let ways = members.iter().map(|member| self.way_to(*member, index));
        ways.fold(Way::There, Way::further_back)
    }

    /// Its progress to one member.
    fn way_to(&self, member: MemberId, index: u64) -> Way {
        let state = lock(&self.0.state);
        let Some(known) = state.members.get(&member) else {
            return Way::Leaves(0);
        };
        match &known.departing {
            _ if known.held.is_some_and(|held| held > index) => Way::There,
            Some((last, out)) if *last >= index && out.is_over() => Way::HasLeft,
            // Possibly of an earlier entry: then this one is sent after it.
            Some((_, out)) => Way::Leaves(out.pieces()),
            None => Way::Leaves(0),
        }
    }

    /// The proxy of a member gets the request that ends with this entry only after it has acknowledged the entry.
    pub(crate) fn wait_for(&self, target: MemberId, last: u64) {
        if let Some(known) = lock(&self.0.state).members.get_mut(&target) {
            known.waits_for = Some(last);
        }
    }

    /// The end of the request that waits for that acknowledgement.
    pub(crate) fn waits_for(&self, target: MemberId) -> Option<u64> {
        lock(&self.0.state).members.get(&target)?.waits_for
    }

    /// A part of an entry larger than a message arrived from a leader.
    pub(crate) fn part_arrives(&self) {
        // No ordering: a reader of an old number waits once more.
        self.0.parts.fetch_add(1, Ordering::Relaxed);
    }

    /// A counter that changes when parts of entries arrive.
    pub(crate) fn parts(&self) -> u64 {
        self.0.parts.load(Ordering::Relaxed)
    }

    /// A member answered a heartbeat.
    pub(crate) fn heard(&self, member: MemberId, now: Instant) {
        if let Some(known) = lock(&self.0.state).members.get_mut(&member) {
            known.answered = Some(now);
        }
    }

    /// A failure on the route through these proxies to a member.
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

    /// A member of the ring; this member need not send to it.
    pub(crate) fn record_in_the_ring(&self, member: MemberId) -> Option<MemberRecord> {
        self.0.records.get()?(member)
    }

    /// The current record of a member to which this one sends.
    pub(crate) fn record(&self, member: MemberId) -> Option<MemberRecord> {
        let state = lock(&self.0.state);
        Some(self.0.newest(member, state.members.get(&member)?))
    }
}

impl Shared {
    /// A member's current record; before the ring's records are known, the one from when sending to it began.
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

// Network traffic for the entries of the log, counted by member and by route: payload bytes that were sent, and those
// that a proxy saved; and how often a proxy was left, with the reason.

/// Counters since the process started.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Counted>);

/// Counters of what was sent directly, over proxies and for other leaders, since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// For each member to which entries were sent.
    pub members: BTreeMap<MemberId, Sent>,
    /// How often a proxy was left, by proxy and reason.
    pub fallbacks: BTreeMap<(MemberId, &'static str), u64>,
    /// What this member forwarded for others.
    pub relayed: Relayed,
}

/// Traffic to one member, in bytes of the entries' payloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Entries that this member sent there itself, with their payloads.
    pub direct_entries: u64,
    /// Bytes of those entries' payloads.
    pub direct_bytes: u64,
    /// Entries sent as op ids, over a proxy.
    pub proxied_entries: u64,
    /// Payload bytes that did not leave from here.
    pub spared_bytes: u64,
}

/// What this member forwarded for leaders since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Sessions that were requested.
    pub sessions: u64,
    /// Entries that were restored and forwarded.
    pub entries: u64,
    /// Bytes of the payloads of those entries.
    pub bytes: u64,
    /// Sessions that ended because an entry was not here.
    pub missing: u64,
    /// Sessions that ended because the next member could not be called.
    pub cannot_call: u64,
    /// Sessions that were refused when they were requested.
    pub refused: u64,
}

impl Traffic {
    /// A copy of all counters.
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
