//! [`Scenario::Provisioning`]: operators clone one server's data to another, with clients and faults. The first clone has no faults, and a
//! time limit. Then all is random. The next recipient may be healthy, or may have an errant transaction. Recipients, donors, their servers
//! and their links fail during a clone, and the leadership moves. An operator repeats the command until the server follows.
//!
//! [`Scenario::Provisioning`]: crate::scenario::Scenario::Provisioning

use std::collections::BTreeMap;
use std::time::Duration;

use member::protocol::{Provisioned, Refusal};
use mysqld_model::{Mysqld, Transaction};
use raft_types::MemberId;

use crate::dice::{millis, pick, pick_some};
use crate::event::Event;
use crate::faults::{self, Crash, Fault, MysqldFault};
use crate::member::{Process, recipient_in, without_folder_names};
use crate::operations::Operation;
use crate::shared::Shared;
use crate::tick::Tick;
use crate::world::World;

/// Time limit for a clone with all its steps, without faults.
const TIME_FOR_A_COPY: Duration = Duration::from_secs(40);
/// Time limit, after all faults are fixed, until each recipient follows. A running attempt must end first, and a server that has crashed
/// repeatedly is restarted half a minute later.
const TIME_TO_PROVISION: Duration = Duration::from_secs(150);
/// Pause of an operator between two attempts.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The list to which an administrator appends at one server, outside the ring.
const ERRANT: u64 = 1_000_000;

/// The clones in progress, by recipient.
#[derive(Default)]
pub(super) struct Provisions {
    orders: BTreeMap<MemberId, Order>,
    /// Number of appends outside the ring so far.
    errant: u64,
}

/// A server that is to become the recipient of a clone.
#[derive(Default)]
struct Order {
    attempt: Option<Attempt>,
    /// Number of attempts so far.
    attempts: u32,
    /// When the operator runs the command next.
    next: Tick,
}

/// A run of the command.
struct Attempt {
    donor: MemberId,
    answer: Answer,
}

/// The result of the command. The member that executes the command sets it. If that member ends first, it drops its owner of the result.
type Answer = Shared<Option<Result<Provisioned, Refusal>>>;

impl World {
    /// Clones data to a follower without faults.
    pub(super) fn planned_copy(&mut self) {
        let Some(recipient) = self.choose_recipient() else {
            return;
        };
        self.provisions.orders.insert(recipient, Order::default());
        let otherwise = format!("no copy comes to {recipient}");
        self.wait_until(&otherwise, TIME_FOR_A_COPY, |world| {
            world.provisions.orders.is_empty()
        });
        self.until_calm();
    }

    /// Returns a server that accepts no writes and is not a recipient yet.
    fn choose_recipient(&mut self) -> Option<MemberId> {
        let servers = self.servers().into_iter();
        let free = servers
            .filter(|(id, server)| !server.is_open() && !self.provisions.orders.contains_key(id));
        let free: Vec<MemberId> = free.map(|(id, _)| id).collect();
        pick_some(&mut self.dice, &free)
    }

    /// Chooses an operator's next action, or a fault of a clone.
    pub(super) fn fault_of_a_copy(&mut self) -> Option<Fault> {
        let under_way = self.provisions.orders.iter();
        let under_way: Vec<(MemberId, MemberId)> = under_way
            .filter_map(|(recipient, order)| Some((*recipient, order.attempt.as_ref()?.donor)))
            .collect();
        if under_way.is_empty() || self.dice.u32(0..6) == 0 {
            self.order_a_copy();
            return None;
        }
        let (recipient, donor) = *pick(&mut self.dice, &under_way);
        let member = *pick(&mut self.dice, &[recipient, recipient, donor]);
        let down = millis(&mut self.dice, 10..3_000);
        let server = |fault| Fault::Mysqld(member, fault);
        Some(match self.dice.u32(0..10) {
            0..=1 => server(MysqldFault::Kill),
            2 => server(MysqldFault::KillWithMember),
            3 => server(MysqldFault::Pause(down)),
            // The commits of an open server would depend on its member, which may be down.
            4 if !self.is_open(member) => server(MysqldFault::Terminate),
            4 => server(MysqldFault::Kill),
            5 => Fault::crash(member, faults::power_cut(&mut self.dice), down),
            6..=7 => Fault::crash(member, Crash::Kill, down),
            8 => Fault::Cut(vec![recipient], vec![donor], down),
            _ => Fault::Promote(member),
        })
    }

    fn is_open(&self, member: MemberId) -> bool {
        self.host(member).is_some_and(|host| host.mysqld.is_open())
    }

    fn order_a_copy(&mut self) {
        let Some(recipient) = self.choose_recipient() else {
            return;
        };
        // If no other server had the data, a clone over it could lose the ring's data.
        if self.dice.u32(0..3) == 0 && self.another_has_its_data(recipient) {
            self.append_outside_of_the_ring(recipient);
        }
        self.record
            .note(&format!("an operator is to provision {recipient}"));
        let order = Order {
            next: self.now.after(millis(&mut self.dice, 0..3_000)),
            ..Order::default()
        };
        self.provisions.orders.insert(recipient, order);
    }

    /// Returns whether another server has its data and is not a recipient.
    fn another_has_its_data(&self, than: MemberId) -> bool {
        let servers = self.servers();
        servers.iter().any(|(id, server)| {
            let is_free = !self.provisions.orders.contains_key(id);
            *id != than && is_free && !server.lacks_its_data()
        })
    }

    /// Writes at a follower, as an administrator may do by mistake.
    fn append_outside_of_the_ring(&mut self, member: MemberId) {
        self.provisions.errant += 1;
        let value = self.provisions.errant;
        let server = self.servers().remove(&member);
        let Some(Ok(mut session)) = server.map(|server| server.log_in("root")) else {
            return;
        };
        session.run("SET GLOBAL super_read_only = OFF");
        session.begin(Transaction {
            appends: vec![(ERRANT, value)],
            reads: Vec::new(),
        });
        let told = session.poll();
        self.record.note(&format!(
            "a client appends at the server of {member}: {told:?}"
        ));
    }

    // Checks after each step.

    /// Delivers requests to donors, continues the operators' clones, and checks that no server is used without its data.
    pub(super) fn check_copies(&mut self) {
        for call in self.neighbours.calls() {
            if let Some(donor) = self.process(call.donor) {
                donor.answer_recipient(call);
            }
        }
        for (member, server) in self.servers() {
            if server.lacks_its_data() && (server.is_open() || server.applies()) {
                let used = Operation::UsedWithoutItsData { member };
                self.record.saw(&Event::Operation(used));
            }
        }
        let recipients: Vec<MemberId> = self.provisions.orders.keys().copied().collect();
        for recipient in recipients {
            if let Some(order) = self.provisions.orders.remove(&recipient)
                && let Some(order) = self.continue_with_order(recipient, order)
            {
                self.provisions.orders.insert(recipient, order);
            }
        }
    }

    /// Continues a clone. Returns `None` after it has completed.
    fn continue_with_order(&mut self, recipient: MemberId, mut order: Order) -> Option<Order> {
        if let Some(attempt) = &order.attempt {
            // The executing member runs as long as there is another owner of the answer.
            let is_lost = attempt.answer.is_last();
            let told = attempt.answer.lock().take();
            match told {
                Some(Ok(done)) if done.follows => return None,
                None if !is_lost => return Some(order),
                // The command is also repeated if the clone succeeded and the server does not follow: the donor's errant transactions were
                // cloned, too.
                Some(_) | None => order.next = self.now.after(TRY_AGAIN),
            }
            order.attempt = None;
        }
        if self.now < order.next {
            return Some(order);
        }
        // The leadership is not moved for a clone that is not needed.
        let leads = self.leader() == Some(recipient);
        if (leads || order.attempts > 0) && self.is_fine(recipient) {
            return None;
        }
        order.attempt = self.give_the_command(recipient);
        order.attempts += u32::from(order.attempt.is_some());
        order.next = self.now.after(TRY_AGAIN);
        Some(order)
    }

    /// Returns whether the server is healthy, so that no clone is needed.
    fn is_fine(&self, member: MemberId) -> bool {
        let view = self.process(member).and_then(Process::mysqld);
        // An administrator's writes at the primary are replicated like all others, so that they are not errant.
        let servers = self.servers();
        let errant = |server: &Mysqld| server.lists().remove(&ERRANT);
        let primary = servers.values().find(|server| server.is_open());
        view.is_some_and(|view| view.following || view.writable)
            && primary.map(errant) == servers.get(&member).map(errant)
    }

    fn give_the_command(&mut self, recipient: MemberId) -> Option<Attempt> {
        let servers: Vec<MemberId> = self.servers().into_keys().collect();
        let views = servers.iter().filter_map(|id| {
            let view = self.process(*id)?.mysqld()?;
            (*id != recipient && (view.following || view.writable)).then_some((*id, view))
        });
        let mut donors: BTreeMap<MemberId, _> = views.collect();
        let names: Vec<MemberId> = donors.keys().copied().collect();
        let donor = pick_some(&mut self.dice, &names)?;
        let force = self.dice.u32(0..4) == 0;
        if self.leader() == Some(recipient) {
            self.transfer(donor);
            return None;
        }
        let name = self.slots.get(&donor)?.setup.record.name.clone();
        let process = self.process(recipient)?;
        let (answer, record) = (Answer::default(), self.record.clone());
        let tell = answer.clone();
        record.note(&format!("{recipient} is provisioned from {donor}"));
        let asked = self.neighbours.donor(donor, &name);
        process.provision(asked, donors.remove(&donor), force, move |outcome| {
            // Removes folder names, which differ in each run, so that the text is reproducible.
            let told = without_folder_names(&format!("{outcome:?}"));
            record.note(&format!("{recipient} is provisioned: {told}"));
            *tell.lock() = Some(outcome);
        });
        Some(Attempt { donor, answer })
    }

    // The end.

    /// Checks, after all faults are fixed, that the operators complete their clones, and that the accounts of clones are removed where they
    /// must be.
    pub(super) fn copies_end(&mut self) {
        let orders = self.provisions.orders.keys();
        let otherwise = format!(
            "not all of {:?} are provisioned",
            orders.collect::<Vec<_>>()
        );
        self.wait_until(&otherwise, TIME_TO_PROVISION, |world| {
            world.provisions.orders.is_empty()
        });
        self.accounts_of_copies_are_gone();
    }

    /// Returns whether only allowed accounts of clones exist. A recipient may have only accounts that it created as a donor after its
    /// clone. A donor may have at most one for each recipient: an account that a failed attempt could not drop. The next offer drops it.
    fn accounts_of_copies_are_gone(&self) {
        let may_be = self.neighbours.accounts();
        for (donor, server) in self.servers() {
            let mut left = BTreeMap::new();
            let names = server.account_names();
            for recipient in names.iter().filter_map(|name| recipient_in(name)) {
                *left.entry(recipient).or_insert(0_u32) += 1;
            }
            for (recipient, count) in left {
                if count > 1 || !may_be.contains(&(donor, recipient)) {
                    self.stuck(&format!(
                        "the server of {donor} has {count} accounts for copies to {recipient}"
                    ));
                }
            }
        }
    }
}
