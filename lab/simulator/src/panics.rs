//! Panics anywhere in the process: the engine catches its own and only reports that it has stopped.

use std::sync::{Mutex, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From here on panics are recorded with their location, instead of printed.
pub(crate) fn note_all() {
    std::panic::set_hook(Box::new(|panic| {
        SEEN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(panic.to_string());
    }));
}

/// The panics recorded since the last call.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}
