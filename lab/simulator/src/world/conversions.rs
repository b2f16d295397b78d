//! [`Scenario::Conversions`]: servers in plain replication become a ring, and a ring becomes plain replication again. An operator runs
//! `enable-raft` and `disable-raft` on the primary's host. The command is killed at random points, and the operator repeats it. Clients are
//! active. Members, servers, hosts and links fail. Between two conversions, the ring works for some time under all faults of a ring. At the
//! end of each phase all faults are fixed, and then the command must complete.
//!
//! ```text
//!   plain replication ─ enable-raft ─► ring ─ disable-raft ─► plain replication ─ (enable-raft ─► ring)
//! ```
//!
//! [`Scenario::Conversions`]: crate::scenario::Scenario::Conversions

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use member::conversion::{Direction, MemberPlace};
use mysqld_model::Mysqld;
use raft_types::MemberId;
use tokio::task::AbortHandle;

use crate::dice::{millis, pick};
use crate::event::Event;
use crate::faults::{self, Crash, Fault, MysqldFault};
use crate::member::{AdminCalls, ConversionCommand, Hosts};
use crate::mutation::Mutation;
use crate::operations::Operation;
use crate::shared::Shared;
use crate::tick::{STEP, Tick};
use crate::world::World;
use crate::world::mysqlds::TIME_FOR_SERVERS;
use crate::world::slot::Slot;

/// Time limit until the replicas follow the primary at the beginning.
const TIME_TO_FOLLOW: Duration = Duration::from_secs(20);
/// Time limit for the command to complete after all faults are fixed. A running command may have to reach its own timeout first.
const TIME_TO_CONVERT: Duration = Duration::from_secs(180);
/// Duration of the faults for a mutation with which the command never completes.
const LONG_CHAOS: Duration = Duration::from_secs(45);
/// Pause of the operator between two runs of the command.
const RUN_AGAIN: Duration = Duration::from_secs(1);

/// The conversion of a run, with its operator.
pub(super) struct Conversions {
    hosts: Hosts,
    pub(super) calls: AdminCalls,
    /// True if commits wait for an ACK of a replica before the conversion to a ring.
    semi_sync: bool,
    /// True until the first conversion. The option files are then those of the original plain replication.
    at_first: bool,
    /// The member of the primary, as the operator last knew it.
    primary: MemberId,
    /// The operator's current goal. `None`: the conversion has completed.
    goal: Option<Direction>,
    run: Option<Run>,
    /// When the operator runs the command next.
    next: Tick,
    /// The servers that the service manager will start, each with the time of the start.
    starts: BTreeMap<MemberId, Tick>,
}

/// A run of the command.
struct Run {
    own: MemberId,
    task: AbortHandle,
    outcome: Outcome,
}

/// The outcome of a run; `None` until the run has ended.
type Outcome = Shared<Option<Result<(), String>>>;

impl Conversions {
    pub(super) fn new(calls: AdminCalls, dice: &mut Rng) -> Self {
        Self {
            hosts: Hosts::new().unwrap_or_else(|error| panic!("no runtime for hosts: {error}")),
            calls,
            semi_sync: dice.u32(0..4) > 0,
            at_first: true,
            primary: MemberId(0),
            goal: None,
            run: None,
            next: Tick::default(),
            starts: BTreeMap::new(),
        }
    }

    fn kill_the_command(&mut self, next: Tick) {
        if let Some(run) = self.run.take() {
            run.task.abort();
        }
        self.next = next;
    }
}

impl World {
    /// Starts the servers in plain replication, and the members without a ring.
    pub(super) fn begin_plainly(&mut self) {
        self.start_all();
        let servers = self.servers();
        let Some(primary) = servers.keys().next().copied() else {
            return;
        };
        let source = self.name_of(primary);
        let Some(conversions) = &mut self.conversions else {
            return;
        };
        conversions.primary = primary;
        self.record.note(&format!(
            "plain replication from {primary}, semi-sync: {}",
            conversions.semi_sync
        ));
        for server in servers.values() {
            let server = server.clone();
            let replicating = async move { server.run_plain_replication().await };
            conversions.hosts.begin(replicating);
        }
        for member in servers.keys() {
            self.start_plainly(*member);
        }
        for (_, server) in servers.iter().filter(|(id, _)| **id != primary) {
            if let Ok(mut session) = server.log_in("root") {
                session.run(&format!(
                    "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{source}', SOURCE_PORT = 3306, \
                     SOURCE_USER = 'witness', SOURCE_PASSWORD = '', SOURCE_AUTO_POSITION = 1"
                ));
                session.run("START REPLICA");
            }
        }
        self.steps(Duration::from_secs(1));
    }

    fn name_of(&self, member: MemberId) -> String {
        self.slots[&member].setup.record.name.clone()
    }

    fn start_plainly(&self, member: MemberId) {
        if let (Some(host), Some(conversions)) = (self.host(member), &self.conversions) {
            let semi_sync = conversions.semi_sync && conversions.at_first;
            host.start_plainly(member == conversions.primary, semi_sync);
        }
    }

    pub(super) fn enable_raft_again_perhaps(&mut self) {
        if self.dice.u32(0..3) == 0 {
            self.convert(Direction::EnableRaft);
        }
    }

    pub(super) fn until_replicas_follow(&mut self) {
        self.wait_until("replicas do not follow", TIME_TO_FOLLOW, |world| {
            let servers = world.servers();
            let primary = world.conversions.as_ref().map(|one| one.primary);
            let mut replicas = servers.iter().filter(|(id, _)| Some(**id) != primary);
            replicas.all(|(_, server)| server.channel().is_some_and(|(.., connected)| connected))
        });
    }

    /// Waits until the ring has a primary that accepts writes, and followers.
    pub(super) fn until_servers_follow(&mut self) {
        let otherwise = "the ring does not settle";
        self.wait_until(otherwise, TIME_FOR_SERVERS, |world| world.is_calm());
    }

    /// Converts. The operator begins, faults occur for some time and are fixed, and then the command must complete.
    pub(super) fn convert(&mut self, direction: Direction) {
        self.record
            .note(&format!("an operator is to {}", direction.name()));
        let now = self.now;
        if let Some(conversions) = &mut self.conversions {
            conversions.goal = Some(direction);
            conversions.next = now;
        }
        // One conversion in five has no faults.
        let is_quiet = self.dice.u32(0..5) == 0 && self.mutation.is_none();
        let chaos = match self.mutation {
            Some(Mutation::ReleaseInWords) => LONG_CHAOS,
            _ => millis(&mut self.dice, 2_000..15_000),
        };
        let end = self.now.after(chaos);
        let pause = self.intensity.pause.min(Duration::from_millis(700));
        let chance = STEP.as_secs_f64() / pause.as_secs_f64();
        while self.now < end && self.goes_on() && self.is_converting() {
            if !is_quiet
                && self.dice.f64() < chance
                && let Some(fault) = self.fault_of_a_conversion()
            {
                self.play(fault);
            }
            self.step();
        }
        self.restore_links();
        let otherwise = format!("{} does not come to its end", direction.name());
        self.wait_until(&otherwise, TIME_TO_CONVERT, |world| !world.is_converting());
    }

    fn is_converting(&self) -> bool {
        let conversions = self.conversions.as_ref();
        conversions.is_some_and(|conversions| conversions.goal.is_some())
    }

    /// Chooses the next fault during a conversion.
    fn fault_of_a_conversion(&mut self) -> Option<Fault> {
        let servers: Vec<MemberId> = self.servers().into_keys().collect();
        let all = self.there();
        let own = self.where_the_primary_is();
        let member = match self.dice.u32(0..5) {
            0..=1 => own,
            2..=3 => *pick(&mut self.dice, &servers),
            _ => *pick(&mut self.dice, &all),
        };
        let time = millis(&mut self.dice, 10..3_000);
        let is_server = servers.contains(&member);
        let server = |fault| Fault::Mysqld(member, fault);
        let fault = match self.dice.u32(0..14) {
            0..=4 => {
                let next = self.now.after(time);
                if let Some(conversions) = &mut self.conversions
                    && conversions.run.is_some()
                {
                    self.record.note("the command is killed");
                    conversions.kill_the_command(next);
                }
                return None;
            }
            5 if is_server => server(MysqldFault::Kill),
            6 if is_server => server(MysqldFault::KillWithMember),
            7 if is_server => server(MysqldFault::Pause(time)),
            5..=9 => Fault::Crash(member, Crash::Kill, self.dice.u64(0..12), time),
            10 => Fault::crash(member, faults::power_cut(&mut self.dice), time),
            11..=12 => {
                let others = self.all_but(&[member]);
                Fault::cut(vec![member], others, self.dice.bool(), time)
            }
            _ => Fault::Promote(*pick(&mut self.dice, &servers)),
        };
        // A power cut also ends the command, if it runs on that host.
        if let Fault::Crash(_, Crash::PowerCut(_), ..) = fault
            && let Some(conversions) = &mut self.conversions
            && conversions
                .run
                .as_ref()
                .is_some_and(|run| run.own == member)
        {
            conversions.kill_the_command(self.now.after(time));
        }
        Some(fault)
    }

    /// Returns the member of the host on which the operator runs the command: the primary's, as far as the operator can see.
    fn where_the_primary_is(&self) -> MemberId {
        let servers = self.servers();
        let mut open = servers.iter().filter(|(_, server)| server.is_open());
        let last = self.conversions.as_ref().map(|one| one.primary);
        let last = last.unwrap_or(MemberId(0));
        if let (Some((member, _)), None) = (open.next(), open.next()) {
            return *member;
        }
        if self.is_left_alone(last) {
            return last;
        }
        let leader = self.serving().map(|(leader, _)| leader);
        let leader = leader.filter(|leader| servers.contains_key(leader));
        leader.unwrap_or(last)
    }

    fn is_left_alone(&self, member: MemberId) -> bool {
        let slot = self.slots.get(&member);
        let host = slot.and_then(|slot| Some((slot, slot.setup.host.as_ref()?)));
        host.is_some_and(|(slot, host)| host.is_left_alone(&slot.setup))
    }

    // Checks after each step.

    /// Runs the processes of the hosts, and the operator.
    pub(super) fn check_conversions(&mut self) {
        let Some(conversions) = self.conversions.take() else {
            return;
        };
        conversions.hosts.run_until(self.now);
        for call in conversions.calls.due() {
            if let Some(call) = self.slots[&call.to].answer(call) {
                conversions.calls.hand_back(call);
            }
        }
        self.conversions = Some(conversions);
        self.start_servers_plainly();
        self.continue_the_command();
        self.only_the_primary_is_written();
    }

    /// Restarts unmanaged servers that have exited, as the service manager does.
    fn start_servers_plainly(&mut self) {
        let alone = |(member, slot): (&MemberId, &Slot)| {
            let host = slot.setup.host.as_ref()?;
            let is_down = !host.mysqld.is_running() && host.is_left_alone(&slot.setup);
            is_down.then(|| (*member, host.start_takes()))
        };
        let alone: BTreeMap<MemberId, Duration> = self.slots.iter().filter_map(alone).collect();
        let now = self.now;
        let Some(conversions) = &mut self.conversions else {
            return;
        };
        conversions
            .starts
            .retain(|member, _| alone.contains_key(member));
        for (member, takes) in &alone {
            let at = now.after(*takes);
            conversions.starts.entry(*member).or_insert(at);
        }
        let due = conversions.starts.iter().filter(|(_, at)| **at <= now);
        let due: Vec<MemberId> = due.map(|(member, _)| *member).collect();
        for member in due {
            if let Some(conversions) = &mut self.conversions {
                conversions.starts.remove(&member);
            }
            self.start_plainly(member);
        }
    }

    fn continue_the_command(&mut self) {
        let Some(conversions) = &mut self.conversions else {
            return;
        };
        let Some(direction) = conversions.goal else {
            return;
        };
        if let Some(run) = &conversions.run {
            let Some(ended) = run.outcome.lock().take() else {
                return;
            };
            let own = run.own;
            self.record
                .note(&format!("{} on {own}: {ended:?}", direction.name()));
            conversions.run = None;
            conversions.next = self.now.after(RUN_AGAIN);
            if ended.is_ok() {
                conversions.goal = None;
                conversions.primary = own;
                // From now on the option files are those that the documentation describes.
                conversions.at_first = false;
            }
            return;
        }
        if self.now >= conversions.next {
            self.run_the_command(direction);
        }
    }

    fn run_the_command(&mut self, direction: Direction) {
        let own = self.where_the_primary_is();
        let places = self.slots.iter().map(|(id, slot)| {
            let record = &slot.setup.record;
            MemberPlace {
                id: *id,
                name: record.name.clone(),
                kind: record.kind,
                address: format!("{}:7400", record.name),
            }
        });
        let places: Vec<MemberPlace> = places.collect();
        let patience = millis(&mut self.dice, 15_000..60_000);
        let next = self.now.after(RUN_AGAIN);
        let host = self.host(own).cloned();
        let place = places.iter().find(|place| place.id == own).cloned();
        let (Some(conversions), Some(host), Some(place)) = (&mut self.conversions, host, place)
        else {
            return;
        };
        conversions.next = next;
        if direction == Direction::DisableRaft && host.mysqld.is_open() {
            // The command restores plain replication only after it has made sure that no other server starts open.
            conversions.primary = own;
        }
        let Ok(connect) = host.connect() else {
            return;
        };
        let name = direction.name();
        self.record.note(&format!("{name} is run on {own}"));
        let command = ConversionCommand {
            direction,
            own: place,
            data_dir: host.member_dir(),
            connect,
            places,
            calls: conversions.calls.clone(),
            patience,
            record: self.record.clone(),
        };
        let outcome = Outcome::default();
        let tell = outcome.clone();
        let task = conversions.hosts.begin(async move {
            let ended = command.run().await;
            *tell.lock() = Some(ended);
        });
        conversions.run = Some(Run { own, task, outcome });
    }

    /// Checks that no other server accepts writes while an unmanaged server does.
    fn only_the_primary_is_written(&self) {
        let hosts = self.slots.iter().filter_map(|(member, slot)| {
            let host = slot.setup.host.as_ref()?;
            let is_open = host.mysqld.is_open();
            is_open.then(|| (*member, host.is_left_alone(&slot.setup)))
        });
        let open: Vec<(MemberId, bool)> = hosts.collect();
        let plain = open.iter().find(|(_, left_alone)| *left_alone);
        if let Some((plain, _)) = plain
            && let Some((other, _)) = open.iter().find(|(member, _)| member != plain)
        {
            let (plain, other) = (*plain, *other);
            let both = Operation::TwoPrimaries { plain, other };
            self.record.saw(&Event::Operation(both));
        }
    }

    // The end.

    /// Checks that the state after a conversion is as documented.
    pub(super) fn the_remaining_state_is_as_documented(&mut self) {
        let left_alone = |(member, slot): (&MemberId, &Slot)| {
            let host = slot.setup.host.as_ref()?;
            Some((*member, host.is_left_alone(&slot.setup)))
        };
        let left_alone: BTreeMap<MemberId, bool> =
            self.slots.iter().filter_map(left_alone).collect();
        let mut kinds: Vec<bool> = left_alone.values().copied().collect();
        kinds.dedup();
        let wrong = match kinds[..] {
            [false] => self.not_of_a_ring(),
            [true] => self.not_plain(),
            _ => Some(format!(
                "members differ in what they manage: {left_alone:?}"
            )),
        };
        if let Some(words) = wrong {
            self.stuck(&words);
        }
    }

    fn not_of_a_ring(&self) -> Option<String> {
        let unnamed = |server: &Mysqld| server.channel().is_some_and(|(name, ..)| name.is_empty());
        let servers = self.servers();
        let (member, _) = servers.iter().find(|(_, server)| unnamed(server))?;
        Some(format!("the server of {member} replicates by itself"))
    }

    fn not_plain(&self) -> Option<String> {
        let servers = self.servers();
        let primary = servers.iter().find(|(_, server)| server.is_open());
        let Some((primary, server)) = primary else {
            return Some("there is no primary".to_owned());
        };
        if server.waits_for_acks() || server.channel().is_some() {
            return Some(format!(
                "the released primary {primary} is not plain: waits for ACKs {}, channel {:?}",
                server.waits_for_acks(),
                server.channel()
            ));
        }
        let source = self.name_of(*primary);
        let replicas = servers.iter().filter(|(id, _)| *id != primary);
        let mut channels = replicas.map(|(id, server)| (id, server.channel()));
        let (member, channel) = channels.find(|(_, channel)| {
            let follows = channel.as_ref().is_some_and(|(name, host, connected)| {
                name.is_empty() && *host == source && *connected
            });
            !follows
        })?;
        Some(format!(
            "the server of {member} does not follow {source}: {channel:?}"
        ))
    }
}
