//! Crashes of the in-memory database, at a call that a test has chosen.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// When the database is to crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// At this call of a session, counted from 1 on over all sessions.
    pub call: u64,
    /// Whether the call does what it was asked for, without an answer.
    pub behind: bool,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    GoesOn,
    CrashBefore,
    CrashBehind,
}

#[derive(Debug, Default)]
pub(super) struct Crashes {
    calls: AtomicU64,
    point: Mutex<Option<CrashPoint>>,
    /// Counts crashes. Held while anything is changed, so that a crash is between changes.
    life: RwLock<u64>,
}

impl Crashes {
    pub(super) fn set(&self, point: Option<CrashPoint>) {
        *locked(&self.point) = point;
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    /// Counts a call.
    pub(super) fn next(&self) -> Fate {
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        let mut point = locked(&self.point);
        match point.take_if(|point| point.call == call) {
            None => Fate::GoesOn,
            Some(point) if point.behind => Fate::CrashBehind,
            Some(_) => Fate::CrashBefore,
        }
    }

    pub(super) fn life(&self) -> RwLockReadGuard<'_, u64> {
        self.life.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn end_life(&self) -> RwLockWriteGuard<'_, u64> {
        let mut life = self.life.write().unwrap_or_else(PoisonError::into_inner);
        *life += 1;
        life
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
