//! A program's log has only formats that it supports: the ring's format rises when all members support the next one.

use crate::checkers::checker::Checker;
use crate::event::Event;
use crate::tick::Tick;

pub(super) struct ProgramsSpeakTheRingsFormat;

impl Checker for ProgramsSpeakTheRingsFormat {
    fn name(&self) -> &'static str {
        "programs speak the ring's format"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::BeyondItsProgram { .. } => Err(event.to_string()),
            _ => Ok(()),
        }
    }
}
