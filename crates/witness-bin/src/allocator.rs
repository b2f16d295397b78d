//! The allocator of the `witness` program, which gives memory that was freed back to the system (decision 99).

use std::thread;
use std::time::Duration;

// The system's keeps what was freed in one pool for each thread, and a member of a busy ring grew by megabytes a minute.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// From one look at what was freed to the next.
const LOOKS_EVERY: Duration = Duration::from_secs(5);

/// Sees to it that what was freed goes back whatever the threads of this process do next. Returns at once.
///
/// mimalloc gives memory back while its threads allocate, and notes for that when some is due. Where one thread frees while another
/// takes the note away, that note is lost, and nothing is given back until a thread ends
/// (<https://github.com/microsoft/mimalloc/issues/1246>), which those of a busy member may not do for days. So one does, now
/// and then.
pub(crate) fn keep_giving_back() {
    let end_threads = || {
        loop {
            thread::sleep(LOOKS_EVERY);
            // Where the system has no thread left, memory waits until it has.
            let _ = thread::Builder::new()
                .spawn(|| ())
                .map(thread::JoinHandle::join);
        }
    };
    // Nor is a program kept from its work that has none now.
    let _ = thread::Builder::new()
        .name("memory".to_owned())
        .spawn(end_threads);
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    use std::{hint, process, thread};

    use testkit::figures::private_memory;

    const THREADS: usize = 12;
    const MEBIBYTE: usize = 1 << 20;
    const FREED_BY_EACH: usize = 6 * MEBIBYTE;

    /// Half of what they had. With the system's allocator, all of it is left.
    const MOST_LEFT: usize = THREADS * FREED_BY_EACH / 2;

    fn piece(bytes: usize) -> Vec<u8> {
        hint::black_box(vec![1; bytes])
    }

    /// Each thread has much at the same time as the others, frees it, and goes on with a payload now and then. None of them ends.
    #[test]
    fn what_threads_have_freed_goes_back_to_the_system() {
        super::keep_giving_back();
        let taken = || private_memory(process::id()).unwrap() as usize;
        drop(piece(4 * MEBIBYTE));
        let before = taken();
        let (all_have_it, over) = (Barrier::new(THREADS + 1), AtomicBool::new(false));
        let (most, left) = thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let much: Vec<_> = (0..FREED_BY_EACH / 1024).map(|_| piece(1024)).collect();
                    all_have_it.wait();
                    all_have_it.wait();
                    drop(much);
                    while !over.load(Ordering::Relaxed) {
                        drop(piece(100 << 10));
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
            all_have_it.wait();
            let most = taken();
            all_have_it.wait();
            let began = Instant::now();
            let is_left = || taken() > before + MOST_LEFT;
            while is_left() && began.elapsed() < Duration::from_secs(30) {
                thread::sleep(Duration::from_millis(100));
            }
            let left = taken();
            over.store(true, Ordering::Relaxed);
            (most, left)
        });
        assert!(most >= before + THREADS * FREED_BY_EACH, "{most}");
        let left = left.saturating_sub(before);
        assert!(left <= MOST_LEFT, "{left} bytes are left");
    }
}
