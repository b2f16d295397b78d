//! What each checker does.

use crate::event::Event;
use crate::tick::Tick;

/// One property.
pub(crate) trait Checker: Send {
    /// The property, as it is printed.
    fn name(&self) -> &'static str;

    /// Takes an event in.
    ///
    /// # Errors
    /// What is wrong.
    fn saw(&mut self, at: Tick, event: &Event) -> Result<(), String>;
}
