//! What a seed chooses.

use fastrand::Rng;

/// One of several.
pub(crate) fn pick<'a, T>(dice: &mut Rng, from: &'a [T]) -> &'a T {
    &from[dice.usize(0..from.len())]
}
