//! Runs random logs with each policy, number of workers, window size and sequence of faults. The target must end with the log's
//! rows: no transaction is applied twice or omitted. Readers must see only prefixes of the log, and never a shorter one after a
//! longer one. The database refuses a row that differs from the log, a row that another session has locked, and a commit out of
//! the log's order. One refusal fails the test.
//!
//! A seed determines the log, the configuration and the faults. In paused time on one thread, a gate lets one session call
//! proceed at a time. A failing seed is printed. `APPLIER_SEED=<seed> cargo test -p applier --test parallel_equals_serial` runs
//! only this seed, and `APPLIER_SEEDS=<count>` sets the number of seeds.
//!
//! Shared uses of a key are not tested here, because the in-memory database does not check foreign keys. The scheduler's own
//! tests check them.

#![allow(clippy::unwrap_used, reason = "a test without its requirements fails")]

mod gate;
mod log;
mod readers;
mod tables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use applier::backend::Backend;
use applier::run::{BatchSize, Control, Ended, Options, Progress, RunHandle, WindowSize, apply};
use applier::scheduler::Policy;
use applier::source::{Drained, Source, SourceError};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use fastrand::Rng;
use testkit::memory_database::{CrashPoint, MemoryBackend};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use gate::{Faults, Gate, GatedBackend};
use log::{ALTER, Log};
use readers::Reader;

/// A log that is complete from the beginning.
struct WholeLog {
    log: Arc<Log>,
    next: usize,
}

impl Source for WholeLog {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        let transaction = self.log.transactions.get(self.next).cloned();
        self.next += 1;
        Ok(transaction)
    }

    fn drained(&self) -> Drained {
        Drained::default()
    }
}

/// How a run is interrupted.
#[derive(Debug, Clone, Copy)]
enum Interruption {
    None,
    /// Cancelled after this many milliseconds.
    Cancel(u64),
    /// Dropped after this many milliseconds, without cancellation.
    Abort(u64),
    /// Paused after this many milliseconds, and then continued.
    Pause(u64),
}

#[derive(Debug)]
struct Case {
    options: Options,
    commits_as_one: bool,
    faults: Faults,
    crashes: u32,
}

impl Case {
    fn random(random: &mut Rng) -> Self {
        let options = Options {
            policy: Policy::ALL[random.usize(0..3)],
            workers: random.usize(1..7),
            window: WindowSize {
                rows: random.usize(1..60),
                bytes: 1 << random.u32(10..24),
            },
            batch: BatchSize {
                transactions: random.usize(1..6),
                bytes: 1 << random.u32(8..20),
            },
            stall_after: Duration::from_millis(20),
            reopen_for: Duration::from_secs(5),
            max_transaction_bytes: 1 << 24,
        };
        let rough = random.bool();
        let faults = Faults {
            again: if rough { random.u32(0..80) } else { 0 },
            lost: if rough { random.u32(0..40) } else { 0 },
            wide_locks: if random.u8(0..4) > 0 {
                random.u64(1..4)
            } else {
                0
            },
        };
        Self {
            options,
            commits_as_one: random.bool(),
            faults,
            crashes: if rough { random.u32(0..3) } else { 0 },
        }
    }
}

/// What was observed during the run of a seed.
#[derive(Debug, PartialEq, Eq)]
struct Passage {
    trace: Vec<u64>,
    most_at_once: usize,
    runs: usize,
    step_backs: u64,
    retries: u64,
}

fn interruption(random: &mut Rng) -> Interruption {
    let after = random.u64(1..60);
    match random.u8(0..5) {
        0 => Interruption::Cancel(after),
        1 => Interruption::Abort(after),
        2 => Interruption::Pause(after),
        _ => Interruption::None,
    }
}

async fn pass(seed: u64) -> Passage {
    let mut random = Rng::with_seed(seed);
    let case = Case::random(&mut random);
    let log = Arc::new(log::random(&mut random));
    let memory = MemoryBackend::default();
    for model in tables::all() {
        memory.put_table(model.shape);
    }
    memory.on_statement(ALTER, tables::late_behind_the_statement());
    let gate = Gate::new(random.u64(..), case.faults);
    let chooser = {
        let gate = Arc::clone(&gate);
        tokio::spawn(async move { gate.choose().await })
    };
    let mut reader = Reader {
        memory: memory.clone(),
        log: Arc::clone(&log),
        window_rows: case.options.window.rows,
        seen: 0,
    };
    let mut crashes = case.crashes;
    let (mut runs, mut step_backs, mut retries) = (0, 0, 0);
    loop {
        runs += 1;
        if crashes > 0 {
            crashes -= 1;
            memory.crash_at(CrashPoint {
                call: memory.calls() + random.u64(1..80),
                after: random.bool(),
            });
        }
        let (control, commands) = watch::channel(Control::default());
        let handle = RunHandle {
            control: commands,
            cancel: CancellationToken::new(),
            progress: Arc::new(Progress::new()),
        };
        let (cancel, progress) = (handle.cancel.clone(), Arc::clone(&handle.progress));
        let interruption = match runs {
            1..20 => interruption(&mut random),
            _ => Interruption::None,
        };
        let source = WholeLog {
            log: Arc::clone(&log),
            next: 0,
        };
        let backend = Arc::new(GatedBackend {
            memory: memory.clone(),
            gate: Arc::clone(&gate),
            commits_as_one: case.commits_as_one,
        });
        let interrupts = async {
            match interruption {
                Interruption::None => std::future::pending().await,
                Interruption::Cancel(after) => {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    cancel.cancel();
                    std::future::pending().await
                }
                Interruption::Abort(after) => {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                }
                Interruption::Pause(after) => {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    let paused = Control {
                        paused: true,
                        ..Control::default()
                    };
                    control.send_replace(paused);
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    let slow = Control {
                        paused: false,
                        max_transactions_per_second: Some(100.0),
                    };
                    control.send_replace(slow);
                    std::future::pending().await
                }
            }
        };
        let ended = tokio::select! {
            biased;
            ended = apply(source, backend, &case.options, handle) => Some(ended),
            () = interrupts => None,
            () = reader.poll(&progress) => None,
            () = tokio::time::sleep(Duration::from_secs(3600)) => panic!("it does not end: {case:?}"),
        };
        step_backs += progress.counts().step_backs;
        retries += progress.counts().retries;
        // The tasks of a dropped run end a little later.
        tokio::time::sleep(Duration::from_millis(100)).await;
        reader.look_once();
        match ended {
            Some(Ok(Ended::WithTheLog)) => break,
            Some(Ok(Ended::Cancelled)) => assert!(matches!(interruption, Interruption::Cancel(_))),
            None => assert!(matches!(interruption, Interruption::Abort(_))),
            Some(Err(error)) => panic!("{error}: {case:?}"),
        }
        assert!(runs < 100, "it does not get on: {case:?}");
    }
    chooser.abort();
    let all: GtidSet = log.transactions.iter().map(|one| one.gtid).collect();
    assert_eq!(memory.executed().await.unwrap(), all);
    reader.look_once();
    assert_eq!(reader.seen, log.transactions.len(), "readers see the end");
    assert_eq!(memory.statements(), log.statements);
    Passage {
        trace: gate.trace(),
        most_at_once: gate.most_at_once(),
        runs,
        step_backs,
        retries,
    }
}

fn play(seed: u64) -> Passage {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(pass(seed))
}

fn play_or_say_which(seed: u64) -> Passage {
    match catch_unwind(AssertUnwindSafe(|| play(seed))) {
        Ok(passage) => passage,
        Err(panic) => {
            eprintln!(
                "seed {seed} failed: APPLIER_SEED={seed} cargo test -p applier --test parallel_equals_serial"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn whatever_happens_the_target_ends_as_the_log_says_and_readers_see_prefixes() {
    if let Ok(seed) = std::env::var("APPLIER_SEED") {
        let passage = play(seed.parse().expect("APPLIER_SEED is a number"));
        eprintln!("{passage:?}");
        return;
    }
    let seeds =
        std::env::var("APPLIER_SEEDS").map_or(1500, |count| count.parse().expect("a number"));
    let passages: Vec<Passage> = (0..seeds).map(play_or_say_which).collect();
    // Each fault must have occurred.
    let count = |what: fn(&Passage) -> bool| passages.iter().filter(|one| what(one)).count();
    let parallel = count(|one| one.most_at_once >= 3);
    let restarted = count(|one| one.runs >= 2);
    let stepped_back = count(|one| one.step_backs > 0);
    let retried = count(|one| one.retries > 0);
    eprintln!(
        "{parallel} with three or more concurrent workers, {restarted} restarted, {stepped_back} with step-backs, {retried} with \
         retries"
    );
    let share = passages.len() / 20;
    assert!(parallel > share && restarted > share && stepped_back > share && retried > share);
}

#[test]
fn a_seed_is_reproducible() {
    for seed in [3, 17, 40] {
        assert_eq!(play(seed), play(seed), "seed {seed}");
    }
}
