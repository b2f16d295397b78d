//! No process panics, whatever comes from its disk or its network.

use super::Checker;
use crate::event::Event;
use crate::tick::Tick;

pub(super) struct NothingPanics;

/// The engine's own assertions that fail in builds with debug assertions although nothing is wrong: the file, and the words.
const KNOWN: [(&str, &str); 1] = [
    // The stream of a leader that has just been deposed reads a log that its successor has made shorter, before it looks
    // whether it still leads. Without debug assertions the request is empty, and dropped by that look.
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

fn is_known(words: &str) -> bool {
    KNOWN
        .iter()
        .any(|(file, said)| words.contains(file) && words.contains(said))
}
