//! The interface of checkers.

use crate::event::Event;
use crate::tick::Tick;

/// One property.
pub(crate) trait Checker: Send {
    /// The printed name of the property.
    fn name(&self) -> &'static str;

    /// Checks an event.
    ///
    /// # Errors
    /// The violation.
    fn saw(&mut self, at: Tick, event: &Event) -> Result<(), String>;
}
