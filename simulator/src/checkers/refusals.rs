//! A log opens after every crash. It is refused only when its disk was damaged on purpose, and then it must be. A running
//! member stops by itself only when its disk was told to fail.

use super::Checker;
use crate::event::{Damage, Event};
use crate::tick::Tick;

pub(super) struct LogsOpen;

impl Checker for LogsOpen {
    fn name(&self) -> &'static str {
        "a log opens after every crash"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::RefusedToOpen {
                member,
                why,
                damage: Damage::None,
            } => Err(format!(
                "member {member} cannot open its log, although nothing was damaged: {why}"
            )),
            Event::Opened {
                member,
                damage: Damage::Closed,
                ..
            } => Err(format!(
                "member {member} starts as if nothing were wrong, although a bit of its log was turned around"
            )),
            Event::EngineStopped {
                member,
                why,
                excused: false,
            } => Err(format!(
                "the engine of member {member} stopped, although its disk works: {why}"
            )),
            _ => Ok(()),
        }
    }
}
