//! A process's other tasks continue while one of them processes many bytes.

use std::thread;
use std::time::{Duration, Instant};

use spilling_bytes::long_work;
use tokio::sync::oneshot;

/// Duration of the work: much longer than a loaded machine delays a thread.
const WORK: Duration = Duration::from_secs(2);

/// Returns the longest delay of a 5 ms timer while another task processed this many bytes. A timer had woken that task.
async fn longest_silence(bytes: usize) -> Duration {
    let (ended, mut end) = oneshot::channel::<()>();
    let ticking = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        loop {
            let since = Instant::now();
            tokio::time::sleep(Duration::from_millis(5)).await;
            longest = longest.max(since.elapsed());
            if end.try_recv().is_ok() {
                return longest;
            }
        }
    });
    let working = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(52)).await;
        long_work::run(bytes, || thread::sleep(WORK));
    });
    working.await.expect("the work ends");
    ended.send(()).expect("it still ticks");
    ticking.await.expect("it ticks to the end")
}

/// Uses as many threads as a small machine. The runtime has no other tasks, so the thread that does the work is the one that polled the
/// timers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_run_during_long_work() {
    let silence = longest_silence(long_work::LARGE).await;
    assert!(silence < WORK / 2, "no timer was polled for {silence:?}");
}

#[tokio::test]
async fn single_threaded_runtime_calls_the_work_directly() {
    assert_eq!(long_work::run(long_work::LARGE, || 7), 7);
}

#[test]
fn no_runtime_calls_the_work_directly() {
    assert_eq!(long_work::run(long_work::LARGE, || 7), 7);
}
