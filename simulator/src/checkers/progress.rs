//! After everything was mended the ring commits again in time. How much time that is, the world computes; see `healing`.

use super::Checker;
use crate::event::Event;
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
