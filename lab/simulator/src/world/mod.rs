//! The world of a run: members, links, faults and a common clock, all from one seed.
//!
//! The world advances in steps. Each step delivers the messages that are due, injects the faults that are due, and runs every running
//! member until the end of the step by its own clock. A message takes at least one step, so that the order of the members within a step
//! makes no difference.

mod cold_damage;
mod conversions;
mod damage;
mod disks;
mod failovers;
mod false_alarms;
mod healing;
mod lost_quorum;
mod mysqld_operations;
mod mysqlds;
mod operator;
mod playing;
mod policies;
mod provisioning;
mod scripts;
mod single_links;
mod slot;
mod upgrades;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use consensus::Term;
use consensus::quorum::QuorumPolicy;
use fastrand::Rng;
use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, Region, RingId};
use testkit::disk::FaultyDisk;

use crate::dice::{millis, pick};
use crate::event::Event;
use crate::faults;
use crate::faults::{Fault, Intensity, Stress, View};
use crate::member::{
    AdminCalls, Directory, DiskPace, FileRepair, Host, Neighbours, Process, ProcessSetup,
    RealTransport,
};
use crate::mutation::Mutation;
use crate::network::{Body, ByteStreams, Links, Message, MessageQueue, Relayed};
use crate::record::{Record, Trace};
use crate::scenario::Scenario;
use crate::shape::{MemberShape, Shape};
use crate::sql_clients::SqlClients;
use crate::tick::{STEP, Tick};
use crate::workload::Workload;
use crate::world::conversions::Conversions;
use crate::world::failovers::Siege;
use crate::world::false_alarms::FalseAlarms;
use crate::world::mysqld_operations::Operations;
use crate::world::operator::Removed;
use crate::world::playing::Deferred;
use crate::world::provisioning::Provisions;
use crate::world::scripts::Script;
use crate::world::single_links::SingleLinks;
use crate::world::slot::Slot;

/// Mean time between two relapses in runs without other faults.
const BETWEEN_RELAPSES: Duration = Duration::from_millis(2_500);

/// To a member with false evidence, the leader seems to close its connections in one of this many steps.
const FALSE_ALARMS: u32 = 4;

/// Maximum time between two writes in runs with relapses. A member without contact to the leader for a lease must not lack many entries.
const BETWEEN_WRITES: Duration = Duration::from_millis(600);

/// The state of a run.
pub(crate) struct World {
    record: Record,
    queue: MessageQueue,
    /// The connections of the real transport, if the run uses it.
    streams: Option<ByteStreams>,
    dice: Rng,
    now: Tick,
    shape: Shape,
    slots: BTreeMap<MemberId, Slot>,
    intensity: Intensity,
    /// The ends of faults, and later steps of operators, by their time.
    deferred: BTreeMap<(Tick, u64), Deferred>,
    deferred_number: u64,
    removed: Removed,
    siege: Option<Siege>,
    /// True if an operator has removed a member. Then no disk rots, because a removal together with another failure may remove a majority,
    /// which a ring cannot detect.
    removals: bool,
    /// True if the quorum was lost, which happens at most once in a run.
    quorum_was_lost: bool,
    /// True if the survivor of the repair was lost as well, which happens at most once in a run.
    survivor_was_lost: bool,
    /// Until this time the operator waits for the answer to a repair order.
    repairs_until: Tick,
    scenario: Option<Scenario>,
    script: Script,
    mutation: Option<Mutation>,
    /// How the members handle damaged log files.
    file_repair: Option<FileRepair>,
    /// Duration of a sync without faults.
    usual_sync: Duration,
    /// The clients of the servers, if there are servers.
    clients: Option<SqlClients>,
    /// The operators' actions on the servers.
    operations: Operations,
    /// The operators' clones between servers.
    provisions: Provisions,
    /// The hosts, as servers and members reach them for a clone.
    neighbours: Neighbours,
    /// The conversions between plain replication and a ring, if the scenario has them.
    conversions: Option<Conversions>,
    /// The clients' workload.
    workload: Workload,
    /// The members with false evidence of the leader's exit.
    false_alarms: FalseAlarms,
    single_links: SingleLinks,
}

impl World {
    /// Creates the world of a seed. No process runs yet.
    pub(crate) fn new(
        seed: u64,
        mutation: Option<Mutation>,
        scenario: Option<Scenario>,
        trace: Trace,
    ) -> Self {
        let scenario = scenario.or(mutation.and_then(Mutation::scenario));
        let script = Script::of(scenario);
        let mut dice = Rng::with_seed(seed);
        let record = Record::new(trace, mutation.is_some_and(Mutation::breaks_a_property));
        let mut intensity = Intensity::choose(&mut dice);
        if let Some(stress) = mutation.and_then(Mutation::stress).or(script.stress) {
            intensity = Intensity::of(stress, &mut dice);
        }
        let mut shape = shape_for(mutation, intensity.stress, &mut dice);
        let mut workload = Workload::choose(&mut dice);
        if mutation.is_some_and(Mutation::concerns_primaries) {
            intensity.pause = BETWEEN_RELAPSES;
            workload.write_pause = BETWEEN_WRITES;
        }
        (script.setting)(&mut shape, &mut workload, &mut dice);
        record.note(&format!("seed {seed}: {shape:?}"));
        record.note(&format!("{workload:?} {intensity:?}"));
        let regions = shape.members.iter();
        let regions = regions.map(|(id, member)| (*id, member.record.region.clone()));
        let links = Links::new(regions.collect(), shape.distances);
        let queue = MessageQueue::new(links, dice.fork(), record.clone());
        let usual = Duration::from_micros(*pick(&mut dice, &[0, 300, 2_000, 8_000, 20_000]));
        record.note(&format!("a sync takes {usual:?}"));
        let real = matches!(scenario, Some(Scenario::Transport | Scenario::Upgrades));
        let streams = real.then(|| ByteStreams::new(queue.clone(), dice.fork(), record.clone()));
        let neighbours = Neighbours::new(queue.clone());
        let conversions = (scenario == Some(Scenario::Conversions))
            .then(|| Conversions::new(AdminCalls::new(neighbours.clone()), &mut dice));
        let scrubs = scenario == Some(Scenario::ColdDamage);
        let mut world = Self {
            slots: BTreeMap::new(),
            provisions: Provisions::default(),
            file_repair: scrubs.then(|| cold_damage::file_repair(&mut dice)),
            neighbours,
            conversions,
            record,
            queue,
            streams,
            dice,
            now: Tick(0),
            shape,
            intensity,
            deferred: BTreeMap::new(),
            deferred_number: 0,
            removed: Removed::default(),
            siege: None,
            removals: false,
            quorum_was_lost: false,
            survivor_was_lost: false,
            repairs_until: Tick::default(),
            scenario,
            script,
            mutation,
            usual_sync: usual,
            clients: None,
            operations: Operations::default(),
            workload,
            false_alarms: FalseAlarms::default(),
            single_links: SingleLinks::choose(seed, mutation.is_none()),
        };
        world.make_slots();
        world
    }

    /// Creates a slot for each member.
    fn make_slots(&mut self) {
        let ring = RingId::random();
        let first_member = self.shape.members.keys().next().copied();
        let configured = self.shape.members.iter().map(|(id, member)| {
            let record = MemberRecord {
                incarnation: Incarnation::default(),
                ..member.record.clone()
            };
            (*id, record)
        });
        let configured: Arc<BTreeMap<_, _>> = Arc::new(configured.collect());
        for (id, member) in self.shape.members.clone() {
            let rules = match self.scenario {
                Some(Scenario::Policies) => {
                    policies::of_the_file(&self.shape, Some(id) == first_member, &mut self.dice)
                }
                _ => self.shape.rules.clone(),
            };
            let host = self.host_for(id, &member);
            let streams = self.streams.clone();
            let calls = self.conversions.as_ref().map(|one| one.calls.clone());
            let queue_bytes = (self.scenario == Some(Scenario::SlowDisk)).then_some(disks::QUEUE);
            let setup = ProcessSetup {
                ring,
                id,
                timers: self.shape.timers,
                rules,
                searches_itself: self.shape.searches_itself,
                proxies: self.shape.proxies.clone(),
                returns: self.shape.returns,
                rate: member.rate,
                disk: empty_disk(),
                pace: DiskPace::new(self.usual_sync),
                log: member.log,
                queue_bytes,
                file_repair: self.file_repair,
                workload: self.workload.clone(),
                host,
                transport: streams.map(|all| RealTransport::new(all, ring, id, &member.record)),
                mutation: self.mutation,
                directory: calls
                    .map(|calls| Directory::new(id, &member.record, calls, configured.clone())),
                record: member.record,
            };
            let mut slot = Slot::new(setup);
            slot.absent = member.spare;
            self.slots.insert(id, slot);
        }
    }

    /// Creates the host of a database member, if the run has servers.
    fn host_for(&mut self, id: MemberId, member: &MemberShape) -> Option<Host> {
        let has_servers = self.scenario.is_some_and(Scenario::has_servers);
        if !has_servers || member.record.kind != MemberKind::Database {
            return None;
        }
        let start_takes = millis(&mut self.dice, 20..1_500);
        let copy_takes = match self.scenario {
            Some(Scenario::Provisioning) => millis(&mut self.dice, 200..6_000),
            _ => Duration::ZERO,
        };
        let made = Host::new(
            id.0,
            member.rate,
            start_takes,
            self.neighbours.seen_by(id),
            copy_takes,
            self.mutation,
            &self.record,
        );
        let host = made.unwrap_or_else(|error| panic!("no folder for a server: {error}"));
        let name = &member.record.name;
        self.neighbours.join(name, id, host.mysqld.clone());
        Some(host)
    }

    /// Runs everything: the bootstrap, the faults, their end, and the recovery of the ring.
    pub(crate) fn run(&mut self) {
        (self.script.begin)(self);
        self.play_acts(self.script.acts);
        self.heal();
        self.the_leader_loses_links();
        self.play_acts(self.script.epilogue);
        self.slots.values_mut().for_each(Slot::end);
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn now(&self) -> Tick {
        self.now
    }

    /// Starts all members and bootstraps the ring.
    fn found(&mut self) {
        let members: Vec<MemberId> = self.slots.keys().copied().collect();
        members.into_iter().for_each(|id| self.change_timers(id));
        self.start_all();
        let members = self.shape.members.iter();
        let members = members.filter(|(_, member)| !member.spare);
        let records = members.map(|(id, member)| (*id, member.record.clone()));
        let records: BTreeMap<_, _> = records.collect();
        let first_member = self.slots.values().find_map(Slot::process);
        if let Some(first_member) = first_member {
            let record = self.record.clone();
            first_member.spawn(|member| async move {
                if let Err(error) = member.bootstrap(records).await {
                    record.note(&format!("the ring was not made: {error}"));
                }
            });
        }
        self.steps(Duration::from_secs(1));
    }

    fn start_all(&mut self) {
        for slot in self.slots.values_mut() {
            slot.start(&self.queue, &self.record, self.now);
        }
    }

    fn go_wrong(&mut self, chaos: Range<u64>) {
        let chaos = millis(&mut self.dice, chaos);
        self.record.take_news();
        self.plan_the_loss();
        let end = self.now.after(chaos);
        let chance = STEP.as_secs_f64() / self.intensity.pause.as_secs_f64();
        while self.now < end && self.goes_on() {
            if self.dice.f64() < chance
                && let Some(fault) = self.next_fault()
            {
                self.play(fault);
            }
            self.cut_single_links();
            self.step();
            self.ambush();
        }
    }

    /// Chooses the next fault. If a mutation is visible only with leases, no other faults are injected.
    fn next_fault(&mut self) -> Option<Fault> {
        let time = |dice: &mut Rng| millis(dice, 500..1_500);
        if self.mutation == Some(Mutation::RefuseForTheLiving) {
            return Some(Fault::FalseDeath(time(&mut self.dice)));
        }
        if self.mutation.is_some_and(Mutation::concerns_primaries) {
            return Some(faults::relapse(&mut self.dice, time));
        }
        if let Some((one_in, own_fault)) = self.script.own_faults
            && self.dice.u32(0..one_in) == 0
        {
            return own_fault(self);
        }
        if self.scenario.is_some_and(Scenario::has_servers) && self.dice.bool() {
            return self.fault_of_a_server();
        }
        let view = self.view();
        if self.streams.is_some() && self.dice.u32(0..4) == 0 {
            return faults::forget_connections(&view, &mut self.dice);
        }
        faults::choose(&view, self.intensity, &mut self.dice)
    }

    fn view(&self) -> View {
        let running = self.slots.iter().filter(|(_, slot)| slot.is_running());
        let running: Vec<MemberId> = running.map(|(id, _)| *id).collect();
        let may_rot_tail = self.may_lose_bits();
        View {
            members: self.there(),
            leader: self.leader(),
            regions: self.regions(),
            primaries: self.primaries(),
            may_rot: self.with_closed_files(may_rot_tail.clone()),
            may_rot_tail,
            spares: self.spares(),
            removable: self.removable(),
            relayed: self.relayed(),
            running,
        }
    }

    /// Returns the sessions that running members serve as proxies.
    fn relayed(&self) -> Vec<Relayed> {
        let running = self.slots.values().filter_map(Slot::process);
        running.flat_map(Process::relayed).collect()
    }

    fn regions(&self) -> BTreeMap<MemberId, Region> {
        let slots = self.slots.iter();
        let regions = slots.map(|(id, slot)| (*id, slot.setup.record.region.clone()));
        regions.collect()
    }

    /// Returns the members of the ring, including former ones that may return.
    pub(super) fn there(&self) -> Vec<MemberId> {
        let there = self.slots.iter().filter(|(_, slot)| !slot.absent);
        there.map(|(id, _)| *id).collect()
    }

    /// Returns all members except `some`.
    fn all_but(&self, some: &[MemberId]) -> Vec<MemberId> {
        let mut there = self.there();
        there.retain(|id| !some.contains(id));
        there
    }

    /// Returns the slot of a member. Every member has one.
    fn slot(&mut self, member: MemberId) -> &mut Slot {
        self.slots.get_mut(&member).expect("a member has a slot")
    }

    fn process(&self, member: MemberId) -> Option<&Process> {
        self.slots.get(&member)?.process()
    }

    fn host(&self, member: MemberId) -> Option<&Host> {
        self.slots.get(&member)?.setup.host.as_ref()
    }

    fn runs(&self, member: MemberId) -> bool {
        self.process(member).is_some()
    }

    /// Fails the run, because the ring is stuck.
    fn stuck(&self, why: &str) {
        let words = format!("{why}; {}", self.in_words());
        self.record.saw(&Event::Stuck { words });
    }

    /// Returns the running member that leads in the latest term.
    fn leader(&self) -> Option<MemberId> {
        self.leads().map(|(_, id)| id)
    }

    /// Returns the latest term in which a running member leads.
    fn latest_term(&self) -> Option<Term> {
        self.leads().map(|(term, _)| term)
    }

    fn leads(&self) -> Option<(Term, MemberId)> {
        let leaders = self.slots.iter().filter_map(|(id, slot)| {
            let term = slot.process()?.outline().leadership.leading_term()?;
            Some((term, *id))
        });
        leaders.max()
    }

    fn goes_on(&self) -> bool {
        self.record.violation().is_none()
    }

    fn steps(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end && self.goes_on() {
            self.step();
        }
    }

    /// Runs one step of the world.
    fn step(&mut self) {
        self.now = self.now + 1;
        self.record.set_now(self.now);
        self.play_deferred();
        let slots = &self.slots;
        let due = self.queue.due(self.now, |to| {
            slots.get(&to).is_some_and(Slot::takes_messages)
        });
        self.alarm();
        self.connect();
        for message in due {
            self.slots[&message.to].deliver(message, &self.queue);
        }
        for slot in self.slots.values_mut() {
            slot.run_until(self.now, &self.record);
        }
        for check in self.script.checks {
            check(self);
        }
        self.switch_off_removed();
        self.hang_up();
        self.restart_fallen();
        if let Some(clients) = &mut self.clients {
            clients.step(self.now);
        }
    }

    /// Makes leaders seem to close their connections to members with false evidence.
    fn alarm(&mut self) {
        let alarmed = self.queue.links(|links| links.alarmed.clone());
        for to in alarmed {
            if self.dice.u32(0..FALSE_ALARMS) == 0
                && let Some(from) = self.leader().filter(|leader| *leader != to)
                && let Some(slot) = self.slots.get(&to).filter(|slot| slot.takes_messages())
            {
                let body = Body::HungUp;
                slot.deliver(Message { from, to, body }, &self.queue);
            }
        }
    }

    /// Delivers the bytes in flight on connections.
    fn connect(&mut self) {
        let Some(streams) = &self.streams else {
            return;
        };
        let slots = &self.slots;
        streams.step(self.now, |member| {
            slots.get(&member).is_some_and(Slot::machine_runs)
        });
        for (&leader, slot) in slots {
            let led = slot.process().map(Process::outline);
            if let Some(term) = led.and_then(|outline| outline.leadership.leading_term()) {
                self.record.saw(&Event::Led {
                    term: term.0,
                    leader,
                });
            }
        }
    }

    /// Closes the connections of processes that have ended, as their hosts do.
    fn hang_up(&mut self) {
        if self.streams.is_some() {
            // The simulated connections do this without a message.
            return;
        }
        let members = self.there();
        for (from, slot) in &mut self.slots {
            if std::mem::take(&mut slot.hung_up) {
                for to in members.iter().filter(|to| *to != from) {
                    self.queue.send(Message {
                        from: *from,
                        to: *to,
                        body: Body::HungUp,
                    });
                }
            }
        }
    }
}

/// Returns a ring of the seed that exposes the mutation.
fn shape_for(mutation: Option<Mutation>, stress: Stress, dice: &mut Rng) -> Shape {
    let mut shape = Shape::choose(stress, dice);
    let two_quorums = |shape: &Shape| {
        let spread = shape.regions() > 1;
        spread && shape.rules.policy == QuorumPolicy::SingleRegionDynamic
    };
    while mutation.is_some_and(Mutation::concerns_narrowing) && !two_quorums(&shape) {
        shape = Shape::choose(stress, dice);
    }
    if mutation == Some(Mutation::ProxyIgnoresTheTerm) {
        // openraft's own search first asks a member that has no entries. A proxy may answer, and still have entries that will be replaced.
        shape.searches_itself = false;
        shape.proxy(dice);
    }
    if mutation.is_some_and(Mutation::concerns_primaries) {
        shape.with_databases_only();
    }
    shape
}

/// Returns the disk of a new host.
fn empty_disk() -> FaultyDisk {
    let disk = FaultyDisk::new();
    disk.stop_recording();
    disk
}
