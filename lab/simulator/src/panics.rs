//! Records panics anywhere in the process. openraft catches its own panics, and only reports that it has stopped.

use std::sync::{Mutex, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on, records panics with their locations instead of printing them.
pub(crate) fn note_all() {
    std::panic::set_hook(Box::new(|panic| {
        SEEN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(panic.to_string());
    }));
}

/// Returns the panics recorded since the last call.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}
