//! After all faults are fixed, the ring commits again in time. The world computes the limit; see `healing`.

use crate::checkers::checker::Checker;
use crate::event::{Damage, Event};
use crate::tick::Tick;

pub(super) struct TheRingComesBack;

impl Checker for TheRingComesBack {
    fn name(&self) -> &'static str {
        "after healing the ring commits in time"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Stuck { words } => Err(words.clone()),
            _ => Ok(()),
        }
    }
}

// A removed member is not needed: those that answer continue to commit without it. The world computes the limit; see `removals`.

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

// A log opens after every crash. It is refused only if its disk was damaged deliberately, and then it must be. A running member stops by
// itself only after injected disk failures.

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

// No process panics, whatever its disk or network returns.

pub(super) struct NothingPanics;

/// The engine's debug assertions that fail without a fault: the file, and the message.
const KNOWN: [(&str, &str); 1] = [
    // The stream of a deposed leader reads a log that its successor has truncated, before it checks its leadership. Without debug
    // assertions the request is empty, and that check drops it.
    ("stream_state.rs", "received reversed range"),
];

impl Checker for NothingPanics {
    fn name(&self) -> &'static str {
        "nothing panics"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Panicked { member, words } if !is_known(words) => {
                Err(format!("member {member}: {words}"))
            }
            _ => Ok(()),
        }
    }
}

/// Data directories are never restored to an earlier state, so no member may report one.
pub(super) struct NobodyIsAccused;

impl Checker for NobodyIsAccused {
    fn name(&self) -> &'static str {
        "nobody is accused"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::PutBack { .. } => Err(event.to_string()),
            _ => Ok(()),
        }
    }
}

fn is_known(words: &str) -> bool {
    KNOWN
        .iter()
        .any(|(file, said)| words.contains(file) && words.contains(said))
}
