//! Rings with members that restart with newer or older program versions during faults. The ring's format must rise exactly when all members
//! support the next one. A program that does not support the format of its data directory must not start. After all upgrades, the ring must
//! reach the newest format.

use std::time::Duration;

use raft_types::{FormatRange, FormatVersion};
use ring_admin::Member;

use crate::dice::{millis, pick_some};
use crate::event::Event;
use crate::faults::{Crash, Fault};
use crate::member::upgraded;
use crate::world::World;
use crate::world::slot::Slot;

/// Time limit, in addition to an election, until the ring has the newest format that all members support.
const TIME_TO_RISE: Duration = Duration::from_secs(20);

impl World {
    /// Chooses a restart of a member with the other program version.
    pub(super) fn another_version(&mut self) -> Option<Fault> {
        let members = self.there();
        let member = pick_some(&mut self.dice, &members)?;
        let transport = self.slots.get(&member)?.setup.transport.as_ref()?;
        // Upgrades are chosen more often than downgrades, so that some rings complete the upgrade during faults.
        let formats = match transport.installed() == upgraded() && self.dice.u32(0..3) == 0 {
            true => FormatRange::OF_THIS_PROGRAM,
            false => upgraded(),
        };
        transport.install(formats);
        let words = format!("member {member} gets a program of formats {formats}");
        self.record.note(&words);
        let crash = match self.dice.bool() {
            true => Crash::Stop,
            false => Crash::Kill,
        };
        Some(Fault::crash(member, crash, millis(&mut self.dice, 10..400)))
    }

    /// Checks that no program writes a format that it does not support, or takes part in a ring with such a format.
    pub(super) fn no_member_has_an_unsupported_format(&mut self) {
        for (&member, slot) in &self.slots {
            let (Some(format), Some(transport)) = (ring_format(slot), &slot.setup.transport) else {
                continue;
            };
            let speaks = transport.runs();
            if !speaks.has(format) {
                let words = format!("member {member} supports {speaks:?}, its log has {format:?}");
                self.record.saw(&Event::BeyondItsProgram { words });
            }
        }
    }

    /// Upgrades members that do not support the ring's format. This happens to a member that joined or was downgraded when the format rose.
    /// It accepts no entries and reports that, so that an operator upgrades it.
    pub(super) fn members_of_older_versions_are_upgraded(&mut self) {
        for slot in self.slots.values_mut() {
            let refuses = |member: &Member| member.status().formats.refused.is_some();
            if slot.process().is_some_and(|process| process.with(refuses)) {
                upgrade(slot);
            }
        }
    }

    /// Gives all members the newer program. The ring's format must rise.
    pub(super) fn everybody_is_upgraded(&mut self) {
        self.slots.values_mut().for_each(upgrade);
        let risen = self.happens_within(TIME_TO_RISE, |world| world.all_have_risen());
        // If a member is lost, its formats are unknown, and it stays in the ring until an operator removes it.
        if !risen && !self.has_lost_a_member() {
            self.stuck(&format!(
                "all speak formats {}, and the ring's format is still older after {TIME_TO_RISE:?}",
                upgraded()
            ));
        }
    }

    /// Returns whether a member of the ring is lost permanently.
    fn has_lost_a_member(&self) -> bool {
        let members = self.members().unwrap_or_default();
        let mut slots = self.slots.iter();
        slots.any(|(id, slot)| members.contains(id) && slot.is_lost())
    }

    /// Returns whether the logs of all members have the newest format.
    fn all_have_risen(&self) -> bool {
        let newest = Some(upgraded().newest());
        self.everybody_there(|slot| ring_format(slot) == newest)
    }
}

/// Installs the newer program, and restarts the member if it runs another one.
fn upgrade(slot: &mut Slot) {
    let Some(transport) = slot.setup.transport.clone() else {
        return;
    };
    transport.install(upgraded());
    if transport.runs() != upgraded() && slot.is_running() {
        slot.fall_by(Crash::Stop, None);
    }
}

/// Returns the ring's format in the log of a running member.
fn ring_format(slot: &Slot) -> Option<FormatVersion> {
    Some(slot.process()?.with(Member::ring_format))
}
