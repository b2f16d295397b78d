//! No process panics, whatever comes from its disk or its network.

use super::Checker;
use crate::event::Event;
use crate::tick::Tick;

pub(super) struct NothingPanics;

impl Checker for NothingPanics {
    fn name(&self) -> &'static str {
        "nothing panics"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Panicked { member, words } => Err(format!("member {member}: {words}")),
            _ => Ok(()),
        }
    }
}
