//! The `witness` command.

use std::process::ExitCode;

// The system's allocator keeps freed memory in a pool per thread, and a busy member grew by megabytes a minute (decision 99).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    witness_bin::cli::main()
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

    /// A quarter of the freed memory. The system's allocator would keep all of the freed memory.
    const MOST_LEFT: usize = THREADS * FREED_BY_EACH / 4;

    fn piece(bytes: usize) -> Vec<u8> {
        hint::black_box(vec![1; bytes])
    }

    /// All threads hold 6 MiB at the same time and free it. Then each thread keeps running: it allocates and frees 100 KiB every
    /// millisecond.
    #[test]
    fn memory_freed_by_threads_returns_to_the_system() {
        let taken = || private_memory(process::id()).unwrap() as usize;
        let before = taken();
        drop(piece(4 * MEBIBYTE));
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
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            all_have_it.wait();
            let most = taken();
            all_have_it.wait();
            let began = Instant::now();
            let is_left = || taken() > before + MOST_LEFT;
            while is_left() && began.elapsed() < Duration::from_secs(60) {
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
