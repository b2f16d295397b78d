//! A guard that keeps entries while it exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared::Shared;

static NEXT_HOLD: AtomicU64 = AtomicU64::new(0);

/// Keeps the files with the entries starting at an index. Files that were purged in the meantime are removed on drop.
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

    /// Releases the entries before `index`, which are no longer needed.
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
