//! The operating system's randomness, replaced by a seeded generator in the process that links this crate.
//!
//! Hash maps, uuids, the engine's election timeouts and the runtime's choice among ready branches all draw from
//! `getrandom`. A process in which that symbol is this one does the same thing for the same seed. Only the simulator
//! links it: in anything that makes keys it would be a catastrophe.

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// Begins the sequence of a seed. To be called before anything draws: what was drawn before stays as it is.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::SeqCst);
}

/// The next number of the sequence (SplitMix64).
fn next() -> u64 {
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let mut mixed = STATE.fetch_add(step, Ordering::SeqCst).wrapping_add(step);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What the C library's function of this name is declared as; the linker prefers the program's own.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes, as for the C library's function.
#[allow(
    unsafe_code,
    reason = "std, getrandom and uuid reach the system's randomness through this C symbol and offer no other seam"
)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    let mut word = [0; 8];
    for at in 0..length {
        if at % 8 == 0 {
            word = next().to_le_bytes();
        }
        // SAFETY: the caller guarantees that `length` bytes from `buffer` on may be written.
        unsafe { buffer.add(at).write(word[at % 8]) };
    }
    length.cast_signed()
}
