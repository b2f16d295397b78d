//! Choices of a seed.

use fastrand::Rng;

/// A random element.
pub(crate) fn pick<'a, T>(dice: &mut Rng, from: &'a [T]) -> &'a T {
    &from[dice.usize(0..from.len())]
}
