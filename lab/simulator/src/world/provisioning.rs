//! [`Scenario::Provisioning`]: operators copy one server's data to another, under client load and faults. One copy is made without faults,
//! within a time limit. Then everything is random: a healthy server is copied again, or one with an errant transaction. Recipients, donors,
//! their servers and their links fail in the middle, and the leadership moves. An operator repeats the command until the server follows.
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

/// Time for a copy with all its steps, without faults.
const TIME_FOR_A_COPY: Duration = Duration::from_secs(40);
/// Time for operators, after all faults are fixed, until every server being provisioned follows. A running attempt has to end first, and a
/// repeatedly crashed server is restarted half a minute later.
const TIME_TO_PROVISION: Duration = Duration::from_secs(150);
/// Pause between two attempts.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The list of appends at one server, outside the ring.
const ERRANT: u64 = 1_000_000;

/// The operators' running work, by recipient.
#[derive(Default)]
pub(super) struct Provisions {
    orders: BTreeMap<MemberId, Order>,
    /// Number of appends outside the ring.
    errant: u64,
}

/// A server that is to get a copy.
#[derive(Default)]
struct Order {
    attempt: Option<Attempt>,
    /// Attempts so far.
    attempts: u32,
    /// Next run of the command.
    next: Tick,
}

/// One run of the command.
struct Attempt {
    donor: MemberId,
    answer: Answer,
}

/// Outcome of the command, set by the member that executes it; the member's end drops it.
type Answer = Shared<Option<Result<Provisioned, Refusal>>>;

impl World {
    /// A follower gets a copy without faults.
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

    /// A server that takes no writes, and has no running work.
    fn choose_recipient(&mut self) -> Option<MemberId> {
        let servers = self.servers().into_iter();
        let free = servers
            .filter(|(id, server)| !server.is_open() && !self.provisions.orders.contains_key(id));
        let free: Vec<MemberId> = free.map(|(id, _)| id).collect();
        pick_some(&mut self.dice, &free)
    }

    /// The next action of an operator, or fault of a copy.
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
            // An open server then depends on its member, which may be absent.
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
        // Losing the last server with data would lose the ring.
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

    /// True if another server has its data, and is not to be replaced.
    fn another_has_its_data(&self, than: MemberId) -> bool {
        let servers = self.servers();
        servers.iter().any(|(id, server)| {
            let is_free = !self.provisions.orders.contains_key(id);
            *id != than && is_free && !server.lacks_its_data()
        })
    }

    /// An administrator writes at a follower.
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

    /// Delivers requests to donors, continues the operators' work, and checks that no server is used without its data.
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

    /// The rest of an order, unless it is complete.
    fn continue_with_order(&mut self, recipient: MemberId, mut order: Order) -> Option<Order> {
        if let Some(attempt) = &order.attempt {
            // The executing member is alive while another owner exists.
            let is_lost = attempt.answer.is_last();
            let told = attempt.answer.lock().take();
            match told {
                Some(Ok(done)) if done.follows => return None,
                None if !is_lost => return Some(order),
                // Also if it was copied and does not follow: errant writes at its donor came with the copy.
                Some(_) | None => order.next = self.now.after(TRY_AGAIN),
            }
            order.attempt = None;
        }
        if self.now < order.next {
            return Some(order);
        }
        // The primary is not moved for an unnecessary copy.
        let leads = self.leader() == Some(recipient);
        if (leads || order.attempts > 0) && self.is_fine(recipient) {
            return None;
        }
        order.attempt = self.give_the_command(recipient);
        order.attempts += u32::from(order.attempt.is_some());
        order.next = self.now.after(TRY_AGAIN);
        Some(order)
    }

    /// True if an operator has nothing to do.
    fn is_fine(&self, member: MemberId) -> bool {
        let view = self.process(member).and_then(Process::mysqld);
        // Writes at the primary outside the ring belong to the ring nevertheless.
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
            // The same text each time: folder names depend on the run.
            let told = without_folder_names(&format!("{outcome:?}"));
            record.note(&format!("{recipient} is provisioned: {told}"));
            *tell.lock() = Some(outcome);
        });
        Some(Attempt { donor, answer })
    }

    // The end.

    /// All faults are fixed: operators complete their work, and no copy's account remains where it has to be removed.
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

    /// A recipient has only accounts that it made since as a donor. A donor has at most one for each recipient: of an attempt whose
    /// withdrawal failed, which its next offer removes.
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
