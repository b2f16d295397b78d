//! Rings with servers and their clients: servers are killed, paused and lose power, alone and with their members, while leaders change and
//! links are cut. The clients' results must have a consistent order, and after all faults are fixed all servers have to reach the same
//! state by themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use mysqld_model::Lists;
use raft_types::{MemberId, MemberKind};

use crate::dice::pick;
use crate::event::Event;
use crate::faults;
use crate::faults::{Crash, Fault, MysqldFault};
use crate::member::ClockRate;
use crate::shape::Shape;
use crate::sql_clients::{Servers, SqlClients};
use crate::world::World;
use crate::world::slot::Slot;
use crate::world::undo::Undo;

/// Duration of faults in a run, in milliseconds.
const CHAOS: std::ops::Range<u64> = 10_000..40_000;
/// Time for the ring's first commit and for its servers to agree, after all faults are fixed. A repeatedly crashed server restarts within
/// half a minute. A member whose server cannot be primary keeps the leadership for five seconds. A failed comparison is repeated.
pub(super) const TIME_FOR_SERVERS: Duration = Duration::from_secs(75);

/// Two or three servers: the first of every region, and another one in a single-region ring.
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
        // The host's two clocks are the same.
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

    /// Starts clients and faults.
    pub(super) fn mysqlds(&mut self) {
        self.clients_begin();
        self.everything_goes_wrong();
    }

    pub(super) fn clients_begin(&mut self) {
        let (pause, dice) = (self.workload.write_pause, self.dice.fork());
        let clients = SqlClients::new(self.servers(), pause, dice, self.record.clone());
        self.clients = Some(clients);
        self.steps(Duration::from_secs(4));
    }

    pub(super) fn everything_goes_wrong(&mut self) {
        let chaos = Duration::from_millis(self.dice.u64(CHAOS));
        self.go_wrong(chaos);
    }

    /// A fault of a server, or of a host with its server.
    pub(super) fn fault_of_a_server(&mut self) -> Option<Fault> {
        let servers: Vec<MemberId> = self.servers().into_keys().collect();
        let leader = self.leader().filter(|leader| servers.contains(leader));
        let member = match leader {
            Some(leader) if self.dice.bool() => leader,
            _ => *pick(&mut self.dice, &servers),
        };
        let longest = u64::try_from(self.intensity.longest.as_millis()).unwrap_or(u64::MAX);
        let time = Duration::from_millis(self.dice.u64(10..longest * 3));
        Some(match self.dice.u32(0..10) {
            0..=3 => Fault::Mysqld {
                member,
                fault: MysqldFault::Kill,
            },
            4..=5 => Fault::Mysqld {
                member,
                fault: MysqldFault::Pause(time),
            },
            6 => Fault::Mysqld {
                member,
                fault: MysqldFault::KillWithMember,
            },
            7 => Fault::Mysqld {
                member,
                fault: MysqldFault::LosePowerBehindAHangingMember(time / 4),
            },
            _ => Fault::Crash {
                member,
                crash: faults::power_cut(&mut self.dice),
                after_calls: 0,
                down: time,
            },
        })
    }

    pub(super) fn play_at_server(&mut self, member: MemberId, fault: MysqldFault) {
        let Some(host) = self
            .slots
            .get(&member)
            .and_then(|slot| slot.setup.host.clone())
        else {
            return;
        };
        match fault {
            MysqldFault::Kill => host.mysqld.kill(),
            MysqldFault::Terminate => host.mysqld.terminate(),
            MysqldFault::Pause(time) => {
                host.mysqld.pause();
                self.later(time, Undo::ResumeMysqld(member));
            }
            MysqldFault::LosePowerBehindAHangingMember(time) => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.pause();
                }
                self.later(time, Undo::LosePower(member));
            }
            MysqldFault::KillWithMember => {
                host.mysqld.kill();
                let down = Duration::from_millis(self.dice.u64(5..1_000));
                self.play(Fault::Crash {
                    member,
                    crash: Crash::Kill,
                    after_calls: 0,
                    down,
                });
            }
        }
    }

    /// All faults are fixed: servers reach the same state, and the clients' results have a consistent order.
    pub(super) fn servers_agree(&mut self) {
        if let Some(clients) = &mut self.clients {
            clients.rest();
        }
        let begun = self.now;
        while self.goes_on() && !self.are_alike() {
            if self.now - begun > TIME_FOR_SERVERS {
                let words = format!("the servers are not alike: {}", self.in_words());
                self.record.saw(&Event::Stuck { words });
                break;
            }
            self.step();
        }
        if self.goes_on() {
            self.judge();
        }
    }

    /// Checks the clients' results against the primary's final contents.
    fn judge(&mut self) {
        let servers = self.servers();
        let unknown = servers
            .values()
            .flat_map(|server| server.unknown_statements());
        for statement in unknown {
            let words = format!("the model of mysqld does not know `{statement}`");
            self.record.saw(&Event::Stuck { words });
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

    /// Whether no commit waits, one server accepts writes, and all have the same transactions and contents.
    fn are_alike(&self) -> bool {
        let servers = self.servers();
        let mut servers_there = servers.values();
        let Some(first) = servers_there.next() else {
            return true;
        };
        let same = |server: &mysqld_model::Mysqld| {
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

    pub(super) fn in_words(&self) -> String {
        let slots = self.slots.iter();
        let words = slots.filter_map(|(id, slot)| {
            let host = slot.setup.host.as_ref()?;
            let view = slot.process().and_then(crate::member::Process::mysqld);
            let view = view.map(|view| {
                format!(
                    "{}, write fence: {}, role: {}, unprotected because {:?}",
                    view.state, view.write_fence, view.role, view.unprotected_because
                )
            });
            Some(format!(
                "server of {id}: runs {}, takes writes {}, executed {}; member: {}",
                host.mysqld.is_running(),
                host.mysqld.takes_writes(),
                host.mysqld.gtid_executed(),
                view.unwrap_or_else(|| "does not run".to_owned()),
            ))
        });
        format!(
            "{}; {}{}",
            words.collect::<Vec<_>>().join("; "),
            self.rows_apart(),
            self.standing()
        )
    }

    /// The lists that differ between servers, each with its first difference.
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
            words += &format!("list {number} parts behind {parts} values:");
            for (id, list) in lists {
                let rest: Vec<&u64> = list.iter().skip(parts).take(3).collect();
                words += &format!(" {id} has {} and goes on with {rest:?};", list.len());
            }
            words.push(' ');
        }
        words
    }

    /// Paused hosts resume.
    pub(super) fn servers_go_on(&mut self) {
        for host in self
            .slots
            .values()
            .filter_map(|slot: &Slot| slot.setup.host.as_ref())
        {
            host.mysqld.resume();
        }
    }
}
