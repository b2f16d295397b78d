//! The bound on what is in memory: rows and bytes of transactions that are decoded and not committed.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::run::options::WindowSize;

/// Bytes are counted in units of this many.
const UNIT: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Window {
    rows: Bound,
    units: Bound,
}

/// A transaction's part of the window; dropped, it is free again.
#[derive(Debug)]
pub(super) struct Place {
    _rows: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Bound {
    free: Arc<Semaphore>,
    size: u32,
}

impl Bound {
    fn new(size: usize) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let size = size.clamp(1, most);
        Self {
            free: Arc::new(Semaphore::new(size)),
            size: size as u32,
        }
    }

    /// What is larger than all of it takes all of it.
    fn part(&self, wanted: usize) -> u32 {
        u32::try_from(wanted)
            .unwrap_or(u32::MAX)
            .clamp(1, self.size)
    }

    async fn take(&self, part: u32) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.free).acquire_many_owned(part).await
    }
}

impl Window {
    pub(super) fn new(size: WindowSize) -> Self {
        Self {
            rows: Bound::new(size.rows),
            units: Bound::new(size.bytes.div_ceil(UNIT)),
        }
    }

    /// Whether a transaction of this size would have to wait.
    pub(super) fn is_full_for(&self, rows: usize, bytes: usize) -> bool {
        self.rows.free.available_permits() < self.rows.part(rows) as usize
            || self.units.free.available_permits() < self.units.part(bytes.div_ceil(UNIT)) as usize
    }

    /// Waits until there is room for a transaction; one that is larger than the window waits until it is empty. The
    /// semaphores are never closed, so that there is no error in fact.
    pub(super) async fn enter(&self, rows: usize, bytes: usize) -> Result<Place, AcquireError> {
        Ok(Place {
            _rows: self.rows.take(self.rows.part(rows)).await?,
            _units: self
                .units
                .take(self.units.part(bytes.div_ceil(UNIT)))
                .await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_larger_than_the_window_passes_alone() {
        let window = Window::new(WindowSize {
            rows: 10,
            bytes: 4096,
        });
        let small = window.enter(3, 100).await.unwrap();
        assert!(window.is_full_for(1000, 10) && window.is_full_for(8, 10));
        assert!(window.is_full_for(1, 4000) && !window.is_full_for(7, 3000));
        drop(small);
        assert!(!window.is_full_for(1000, 1 << 40));
        let huge = window.enter(1000, 1 << 40).await.unwrap();
        assert!(window.is_full_for(0, 0));
        drop(huge);
        assert!(!window.is_full_for(10, 4096));
    }
}
