//! What a power cut leaves: a pure choice, made by a seed, of which pending operations arrived.

use super::inode::Tear;
use super::state::{DiskState, NameOp};

/// How much of what was not synced is there after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Nothing of it: the caches were all lost.
    Nothing,
    /// All of it: everything had just been written back.
    Everything,
    /// A part: for each file some of its writes, the last of them torn at any byte or followed by zeros; any of the
    /// names; the beginning of what the hard state was told.
    Seeded(u64),
}

pub(super) fn lose_power(state: &mut DiskState, survival: Survival) {
    let mut dice = match survival {
        Survival::Seeded(seed) => Some(fastrand::Rng::with_seed(seed)),
        Survival::Nothing | Survival::Everything => None,
    };
    let all = survival == Survival::Everything;

    for inode in state.inodes.values_mut() {
        let ops = inode.pending_ops();
        let (kept, tear) = match &mut dice {
            None => (if all { ops } else { 0 }, None),
            Some(dice) => {
                let kept = dice.usize(0..=ops);
                let tear = inode
                    .pending_write_len(kept)
                    .and_then(|len| choose_tear(dice, len));
                (kept, tear)
            }
        };
        inode.lose_power(kept, tear);
    }

    let mut names = std::mem::take(&mut state.durable_names);
    for op in state.pending_names.drain(..) {
        let arrived = dice.as_mut().map_or(all, fastrand::Rng::bool);
        if !arrived {
            continue;
        }
        match op {
            NameOp::Link { name, inode } => {
                names.insert(name, inode);
            }
            NameOp::Rename { from, to, inode } => {
                names.remove(&from);
                names.insert(to, inode);
            }
            NameOp::Unlink { name } => {
                names.remove(&name);
            }
        }
    }
    state.durable_names = names.clone();
    state.names = names;

    let kept = match &mut dice {
        None => {
            if all {
                state.pending_meta.len()
            } else {
                0
            }
        }
        Some(dice) => dice.usize(0..=state.pending_meta.len()),
    };
    for (key, value) in state.pending_meta.drain(..).take(kept) {
        match value {
            Some(value) => state.durable_meta.insert(key, value),
            None => state.durable_meta.remove(&key),
        };
    }
    state.meta = state.durable_meta.clone();
}

fn choose_tear(dice: &mut fastrand::Rng, len: usize) -> Option<Tear> {
    let arrived = dice.usize(0..=len);
    match dice.u8(0..4) {
        0 => None,
        1 => Some(Tear::PrefixThenZeros(arrived)),
        _ => Some(Tear::Prefix(arrived)),
    }
}
