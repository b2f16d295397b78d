//! Random choices that depend on the seed only.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

/// Returns a random element of a list that is not empty.
pub(crate) fn pick<'a, T>(dice: &mut Rng, from: &'a [T]) -> &'a T {
    &from[dice.usize(0..from.len())]
}

/// Returns a random element. `None`: the list is empty.
pub(crate) fn pick_some<T: Copy>(dice: &mut Rng, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| *pick(dice, from))
}

/// Returns a random duration. The range is in milliseconds.
pub(crate) fn millis(dice: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(dice.u64(range))
}
