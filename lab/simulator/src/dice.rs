//! Choices of a seed.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

/// A random element.
pub(crate) fn pick<'a, T>(dice: &mut Rng, from: &'a [T]) -> &'a T {
    &from[dice.usize(0..from.len())]
}

/// A random element, if there is any.
pub(crate) fn pick_some<T: Copy>(dice: &mut Rng, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| *pick(dice, from))
}

/// A random time, in milliseconds.
pub(crate) fn millis(dice: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(dice.u64(range))
}
