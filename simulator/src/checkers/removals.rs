//! Whom the ring lets go is not needed: those that answer go on to commit without it. How long that may take, the world computes;
//! see `removals`.

use super::Checker;
use crate::event::Event;
use crate::tick::Tick;

pub(super) struct WhoeverIsLetGoIsNotNeeded;

impl Checker for WhoeverIsLetGoIsNotNeeded {
    fn name(&self) -> &'static str {
        "a ring that lets a member go goes on without it"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Wedged { words } => Err(words.clone()),
            _ => Ok(()),
        }
    }
}
