//! Limits the number of test clusters that run at the same time, whatever the number of cores and test threads.
//!
//! A test cluster is several processes with time limits. On two cores, three clusters can run if no time limit is below tens of
//! seconds. The other tests need the machine alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The limit of one test program.
#[derive(Debug)]
pub struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
}

/// The permission for one running test cluster; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the turn ends with it"]
pub struct Turn(&'static Turns);

impl Turns {
    /// Allows this many clusters at the same time.
    #[must_use]
    pub const fn of(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            freed: Condvar::new(),
        }
    }

    /// Waits for a permission. Every test of the program calls this before it starts anything.
    pub fn take(&'static self) -> Turn {
        let mut free = self.free();
        while *free == 0 {
            free = self
                .freed
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Turn(self)
    }

    /// A panic in another test does not change the number, so a poisoned lock is accepted.
    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_more_run_than_there_are_turns_and_a_failed_one_gives_its_turn_back() {
        static TURNS: Turns = Turns::of(2);
        static RUN: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let failed = thread::spawn(|| {
            let _turn = TURNS.take();
            panic!("as a test does");
        });
        assert!(failed.join().is_err());
        let scenes: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(|| {
                    let _turn = TURNS.take();
                    let run = RUN.fetch_add(1, Ordering::SeqCst) + 1;
                    MOST.fetch_max(run, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(20));
                    RUN.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        for scene in scenes {
            scene.join().unwrap();
        }
        assert_eq!(MOST.load(Ordering::SeqCst), 2);
        assert_eq!(*TURNS.free(), 2);
    }

    #[test]
    fn every_whole_system_test_begins_with_its_turn() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut tests = 0;
        for program in fs::read_dir(folder).unwrap() {
            let program = program.unwrap().path();
            assert!(
                program.is_dir(),
                "{program:?} is a program for itself: make it a module of `concurrent` or `alone`"
            );
            for file in fs::read_dir(program).unwrap() {
                let path = file.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                for (_, test) in text
                    .match_indices("#[test]\n")
                    .map(|(at, _)| text.split_at(at))
                {
                    let mut body = test.lines().skip_while(|line| !line.starts_with("fn "));
                    let name = body.next().unwrap();
                    let first = body.next().unwrap().trim();
                    assert_eq!(first, "let _turn = SCENES.take();", "{name}: {path:?}");
                    tests += 1;
                }
            }
        }
        assert!(tests > 50, "{tests}");
    }
}
