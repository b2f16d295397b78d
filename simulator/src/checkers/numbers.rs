//! The number of a member is used once: another disk does not get it, neither while the ring has a member of that number nor when it
//! had one.

use super::Checker;
use crate::event::Event;
use crate::tick::Tick;

pub(super) struct NumbersAreUsedOnce;

impl Checker for NumbersAreUsedOnce {
    fn name(&self) -> &'static str {
        "the number of a member is used once"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::UsedNumberTaken { member, by } => Err(format!(
                "member {by} adds a member {member} with another disk, although the number was used"
            )),
            _ => Ok(()),
        }
    }
}
