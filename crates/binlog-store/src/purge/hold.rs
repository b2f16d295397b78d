//! A promise that entries stay, kept for as long as the guard lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared::Shared;

static NEXT_HOLD: AtomicU64 = AtomicU64::new(0);

/// Keeps files from being removed: those with the entries from an index on. Released on drop; files
/// that were to be purged meanwhile then go.
#[must_use = "the entries are kept only as long as the hold lives"]
pub struct PurgeHold {
    shared: Arc<Shared>,
    id: u64,
}

impl PurgeHold {
    pub(crate) fn new(shared: Arc<Shared>, index: u64) -> Self {
        let id = NEXT_HOLD.fetch_add(1, Ordering::Relaxed);
        shared.view.lock().holds.insert(id, index);
        Self { shared, id }
    }

    /// Lets go of the entries before `index`, which are no longer needed.
    pub fn advance(&self, index: u64) {
        let mut view = self.shared.view.lock();
        let held = view.holds.entry(self.id).or_insert(index);
        *held = (*held).max(index);
        drop(view);
        self.shared.nudge();
    }
}

impl Drop for PurgeHold {
    fn drop(&mut self) {
        self.shared.view.lock().holds.remove(&self.id);
        self.shared.nudge();
    }
}
