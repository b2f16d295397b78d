//! Replaces the operating system's randomness and time of day in a process that links this crate. Random numbers come from a seeded
//! generator, and the time of day from a clock that the caller sets.
//!
//! Hash maps, UUIDs, openraft's election timeouts and tokio's choice among ready branches all use `getrandom`. With this symbol instead, a
//! process is reproducible for a seed. Only the simulator links this crate, because generated keys would be predictable. Times of day in
//! logs are reproducible, too. The monotonic clock stays the system's.
//!
//! Only the thread that called [`seed`] uses the seeded sequence. The disk threads of tokio and sled create hash maps at unpredictable
//! times. They use a second sequence, so that they do not affect the first.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::ClockId;

static STATE: AtomicU64 = AtomicU64::new(0);
/// The state of the second sequence, which all other threads use.
static OF_OTHERS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds since [`BEGINNING`].
static TIME_OF_DAY: AtomicU64 = AtomicU64::new(0);
/// Start time of every simulation, in seconds since the epoch.
const BEGINNING: i64 = 1_780_000_000;

thread_local! {
    /// True in the thread that has seeded the sequence.
    static IS_SEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Seeds the sequence of this thread. Only one thread may call this. Call it before any use of randomness, because earlier results do not
/// depend on the seed.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::SeqCst);
    OF_OTHERS.store(!seed, Ordering::SeqCst);
    IS_SEEDED.set(true);
}

/// Returns the next number of this thread's sequence (SplitMix64).
fn next() -> u64 {
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let state = if IS_SEEDED.get() { &STATE } else { &OF_OTHERS };
    let mut mixed = state.fetch_add(step, Ordering::SeqCst).wrapping_add(step);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Has the name and signature of the C library's function. The linker prefers the symbol of the program to that of the library.
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

/// Sets the time of day, as the time since the fixed start time.
pub fn set_time_of_day(since_the_beginning: Duration) {
    let nanos = u64::try_from(since_the_beginning.as_nanos()).unwrap_or(u64::MAX);
    TIME_OF_DAY.store(nanos, Ordering::SeqCst);
}

/// The C library's time structure on 64-bit systems.
#[repr(C)]
#[derive(Debug)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Has the name and signature of the C library's function. The linker prefers the symbol of the program to that of the library. Returns the
/// set time of day; for other clocks, the system's time.
///
/// # Safety
/// `time` must be valid for a write, as for the C library's function.
#[allow(
    unsafe_code,
    reason = "std reaches the system's clocks through this C symbol and offers no other seam"
)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, time: *mut Timespec) -> i32 {
    const REALTIME: i32 = 0;
    const SECOND: i64 = 1_000_000_000;
    let shown = match clock {
        REALTIME => {
            let nanos = TIME_OF_DAY.load(Ordering::SeqCst).cast_signed();
            Timespec {
                seconds: BEGINNING + nanos / SECOND,
                nanoseconds: nanos % SECOND,
            }
        }
        _ => {
            let id = match clock {
                7 => ClockId::Boottime,
                2 => ClockId::ProcessCPUTime,
                3 => ClockId::ThreadCPUTime,
                _ => ClockId::Monotonic,
            };
            let now = rustix::time::clock_gettime(id);
            Timespec {
                seconds: now.tv_sec,
                nanoseconds: now.tv_nsec,
            }
        }
    };
    // SAFETY: the caller guarantees that a time may be written there.
    unsafe { time.write(shown) };
    0
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn draws_of_other_threads_do_not_change_the_sequence() {
        let three = || [next(), next(), next()];
        seed(7);
        let expected = three();
        seed(7);
        let first = next();
        let others = std::thread::spawn(three).join().unwrap();
        assert_eq!([first, next(), next()], expected);
        assert!(others.iter().all(|other| !expected.contains(other)));
    }

    #[test]
    fn the_set_time_of_day_does_not_stop_the_monotonic_clock() {
        set_time_of_day(Duration::from_millis(1_500));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(since, Duration::from_millis(1_780_000_001_500));
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(began.elapsed() >= Duration::from_millis(5));
        assert_eq!(SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), since);
    }
}
