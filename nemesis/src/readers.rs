//! Readers of every server, followers and primary alike: each of their looks sees one state of the ring's log, or they say
//! what they saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use mysql_link::{ConnectOptions, Connection, Endpoint};

use crate::findings::Findings;
use crate::guide::Place;
use crate::stage::{CLIENT, CLIENT_PASSWORD};

const PACE: Duration = Duration::from_millis(40);
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(5);
/// One statement, hence one state.
const LOOK: &str = "SELECT (SELECT n FROM nemesis.pair WHERE half = 0), \
     (SELECT n FROM nemesis.pair WHERE half = 1), (SELECT SUM(n) FROM nemesis.counters)";

/// See the module. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// What one look saw: both halves of the pair, and the sum of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen([u64; 3]);

impl Seen {
    /// In words, if that never was, or lies before what the same server showed earlier.
    fn objection(self, before: Option<Self>) -> Option<String> {
        let Self([left, right, sum]) = self;
        if left != right || left != sum {
            return Some(format!(
                "shows a state that never was: the pair is {left} and {right}, the counters sum up to {sum}"
            ));
        }
        let before = before?.0[0];
        (left < before).then(|| format!("went back from {before} increments to {left}"))
    }
}

impl Readers {
    pub(crate) fn start(places: Vec<Place>, findings: &Findings) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let looks = Arc::new(AtomicU64::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let readers: Vec<_> = places
            .into_iter()
            .map(|place| read(place, findings.clone(), stop.clone(), looks.clone()))
            .collect();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let readers: Vec<_> = readers.into_iter().map(tokio::spawn).collect();
                for reader in readers {
                    // One that panicked said so.
                    let _ = reader.await;
                }
            });
        });
        Ok(Self {
            stop,
            looks,
            thread: Some(thread),
        })
    }

    /// How many looks they had.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked said so.
            let _ = thread.join();
        }
    }
}

async fn read(place: Place, findings: Findings, stop: Arc<AtomicBool>, looks: Arc<AtomicU64>) {
    let mut options = ConnectOptions::new(Endpoint::unix(&place.socket), CLIENT, CLIENT_PASSWORD);
    options.timeouts.statement = LIMIT;
    let mut connection: Option<Connection> = None;
    let mut before = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(connected) = &mut connection else {
            connection = Connection::open(&options).await.ok();
            if connection.is_none() {
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
            continue;
        };
        match look(connected).await {
            Some(seen) => {
                looks.fetch_add(1, Ordering::Relaxed);
                if let Some(objection) = seen.objection(before) {
                    findings.add(format!("{} {objection}", place.name));
                }
                before = Some(seen);
            }
            None => connection = None,
        }
        tokio::time::sleep(PACE).await;
    }
}

async fn look(connection: &mut Connection) -> Option<Seen> {
    let answer = connection.query(LOOK).await.ok()?;
    let row = answer.first()?;
    let number = |place| row.text_at(place)?.parse().ok();
    Some(Seen([number(0)?, number(1)?, number(2)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_whole_and_does_not_go_back() {
        let whole = |n| Seen([n, n, n]);
        assert_eq!(whole(4).objection(None), None);
        assert_eq!(whole(4).objection(Some(whole(4))), None);
        assert!(
            whole(3)
                .objection(Some(whole(4)))
                .unwrap()
                .contains("went back")
        );
        for torn in [[4, 5, 5], [5, 4, 5], [5, 5, 4]] {
            let objection = Seen(torn).objection(None).unwrap();
            assert!(objection.contains("never was"), "{objection}");
        }
    }
}
