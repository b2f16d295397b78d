//! Rings with servers and clients. Servers are killed, paused and lose power, alone and with their members, while leaders change and links
//! are cut. The clients' results must have a consistent order. After all faults are fixed, all servers must reach the same state without
//! help.

use std::collections::BTreeSet;
use std::time::Duration;

use mysqld_model::{Lists, Mysqld};
use raft_types::{MemberId, MemberKind};

use crate::dice::{millis, pick};
use crate::event::Event;
use crate::faults;
use crate::faults::{Fault, MysqldFault};
use crate::member::ClockRate;
use crate::shape::Shape;
use crate::sql_clients::{Servers, SqlClients};
use crate::world::World;

/// Time limit for the first commit, and for the servers to become equal, after all faults are fixed. A server that has crashed repeatedly
/// is restarted within half a minute. A member with a server that cannot be the primary keeps the leadership for five seconds. A failed
/// comparison is repeated.
pub(super) const TIME_FOR_SERVERS: Duration = Duration::from_secs(75);

/// Gives two or three members a server: the first member of each region, and a second one if there is only one region.
pub(super) fn with_servers(shape: &mut Shape) {
    let regions = shape.regions();
    let mut seen = Vec::new();
    for member in shape.members.values_mut() {
        let region = member.record.region.clone();
        let earlier = seen.iter().filter(|one| **one == region).count();
        let is_server = earlier == 0 || (regions == 1 && earlier == 1);
        member.record.kind = match is_server && !member.spare {
            true => MemberKind::Database,
            false => MemberKind::Witness,
        };
        // The clocks of the host and of the member are the same.
        member.rate = match is_server {
            true => ClockRate(1000),
            false => member.rate,
        };
        member.record.votes |= is_server;
        seen.push(region);
    }
    shape.members.retain(|_, member| !member.spare);
}

impl World {
    pub(super) fn servers(&self) -> Servers {
        let slots = self.slots.iter();
        let hosts = slots.filter_map(|(id, slot)| {
            let host = slot.setup.host.as_ref()?;
            Some((*id, host.mysqld.clone()))
        });
        hosts.collect()
    }

    pub(super) fn clients_begin(&mut self) {
        let (pause, dice) = (self.workload.write_pause, self.dice.fork());
        let clients = SqlClients::new(self.servers(), pause, dice, self.record.clone());
        self.clients = Some(clients);
        self.steps(Duration::from_secs(4));
    }

    /// Returns a member with a server. In half of the cases it is the leader.
    pub(super) fn a_server(&mut self) -> MemberId {
        let servers: Vec<MemberId> = self.servers().into_keys().collect();
        match self.leader().filter(|leader| servers.contains(leader)) {
            Some(leader) if self.dice.bool() => leader,
            _ => *pick(&mut self.dice, &servers),
        }
    }

    /// Chooses a fault of a server, or of a host with its server.
    pub(super) fn fault_of_a_server(&mut self) -> Option<Fault> {
        let member = self.a_server();
        let time = millis(&mut self.dice, 10..self.intensity.longest_ms() * 3);
        let fault = match self.dice.u32(0..10) {
            0..=3 => MysqldFault::Kill,
            4..=5 => MysqldFault::Pause(time),
            6 => MysqldFault::KillWithMember,
            7 => MysqldFault::LosePowerBehindAHangingMember(time / 4),
            _ => {
                let crash = faults::power_cut(&mut self.dice);
                return Some(Fault::crash(member, crash, time));
            }
        };
        Some(Fault::Mysqld(member, fault))
    }

    /// Checks, after all faults are fixed, that the servers become equal and that the clients' results have a consistent order.
    pub(super) fn servers_agree(&mut self) {
        if let Some(clients) = &mut self.clients {
            clients.rest();
        }
        let otherwise = "the servers are not alike";
        self.wait_until(otherwise, TIME_FOR_SERVERS, |world| world.are_alike());
        if self.goes_on() {
            self.judge();
        }
    }

    /// Checks the clients' results against the final contents of the primary.
    fn judge(&mut self) {
        let servers = self.servers();
        for statement in servers.values().flat_map(Mysqld::unknown_statements) {
            self.stuck(&format!("the model of mysqld does not know `{statement}`"));
        }
        let (now, Some(clients)) = (self.now + 1, &mut self.clients) else {
            return;
        };
        for server in servers.values().filter(|server| server.takes_writes()) {
            clients.read_all(now, server);
        }
        for words in clients.judge() {
            self.record.saw(&Event::Unexplained { words });
        }
    }

    /// Returns whether no commit waits, one server accepts writes, and all servers have the same transactions and contents.
    fn are_alike(&self) -> bool {
        let servers = self.servers();
        let mut servers_there = servers.values();
        let Some(first) = servers_there.next() else {
            return true;
        };
        let same = |server: &Mysqld| {
            server.is_running()
                && server.gtid_executed() == first.gtid_executed()
                && server.lists() == first.lists()
        };
        let open = servers.values().filter(|server| server.takes_writes());
        self.clients.as_ref().is_none_or(SqlClients::are_at_rest)
            && first.is_running()
            && servers_there.all(same)
            && open.count() == 1
    }

    /// Returns the state of all servers and members as text.
    pub(super) fn in_words(&self) -> String {
        let servers = self.slots.iter().filter_map(|(id, slot)| {
            let mysqld = &slot.setup.host.as_ref()?.mysqld;
            let view = slot.process().and_then(crate::member::Process::mysqld);
            let view = view.map_or_else(
                || "does not run".to_owned(),
                |view| {
                    format!(
                        "{}, write fence: {}, role: {}, unprotected because {:?}",
                        view.state, view.write_fence, view.role, view.unprotected_because
                    )
                },
            );
            Some(format!(
                "server of {id}: runs {}, takes writes {}, executed {}; member: {view}; ",
                mysqld.is_running(),
                mysqld.takes_writes(),
                mysqld.gtid_executed(),
            ))
        });
        let servers: String = servers.collect();
        format!("{servers}{}{}", self.rows_apart(), self.standing())
    }

    /// Returns the lists that differ between servers, each with its first difference.
    fn rows_apart(&self) -> String {
        let contents = self.servers().into_iter();
        let contents: Vec<(MemberId, Lists)> =
            contents.map(|(id, server)| (id, server.lists())).collect();
        let numbers: BTreeSet<u64> = contents
            .iter()
            .flat_map(|(_, lists)| lists.keys().copied())
            .collect();
        let mut words = String::new();
        for number in numbers {
            let lists = contents
                .iter()
                .map(|(id, lists)| (id, lists.get(&number).map_or(&[][..], Vec::as_slice)));
            let lists: Vec<(&MemberId, &[u64])> = lists.collect();
            let Some((_, first)) = lists.first() else {
                break;
            };
            if lists.iter().all(|(_, list)| list == first) {
                continue;
            }
            let same = |at: &usize| {
                let value = first.get(*at);
                value.is_some() && lists.iter().all(|(_, list)| list.get(*at) == value)
            };
            let parts = (0..).take_while(same).count();
            words += &format!("list {number} parts after {parts} values:");
            for (id, list) in lists {
                let rest: Vec<&u64> = list.iter().skip(parts).take(3).collect();
                words += &format!(" {id} has {} and continues with {rest:?};", list.len());
            }
            words.push(' ');
        }
        words
    }
}
