//! Readers of every server: the followers and the primary. Each read must return one state of the ring's log. If the server was the primary
//! throughout the read, the read must return everything acknowledged before it began. A primary that is cut off must refuse reads after
//! `KEPT_OFF_AFTER`. Violations are reported.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use mysql_link::{ConnectOptions, Connection, Endpoint};
use testkit::cluster::{CLIENT, CLIENT_PASSWORD};

use crate::clients::{Books, run_all};
use crate::guide::{Place, Yes};
use crate::stage::FENCE_AFTER;

const PACE: Duration = Duration::from_millis(40);
/// One in this many reads also reads the lists.
const LISTS_EVERY: u64 = 8;
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(5);
/// Time from a primary's isolation until it must have ended its readers' sessions: one lease (0.75 s), `mysql.fence_after`, and time for a
/// busy machine.
const KEPT_OFF_AFTER: Duration = Duration::from_secs(3).saturating_add(FENCE_AFTER);
/// All values are read in one statement, and so in one state.
const LOOK: &str = "SELECT (SELECT n FROM nemesis.pair WHERE half = 0), \
     (SELECT n FROM nemesis.pair WHERE half = 1), (SELECT SUM(n) FROM nemesis.counters)";

/// The running readers. Dropping this value ends them.
#[derive(Debug)]
pub(crate) struct Readers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The isolation of a primary together with its mysqld: the primary's place, and when the isolation started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    place: usize,
    since: Instant,
}

impl Cut {
    /// Returns whether the server at `place` must refuse readers at `now`.
    fn keeps_off(self, place: usize, now: Instant) -> bool {
        self.place == place && now >= self.since + KEPT_OFF_AFTER
    }
}

/// The result of one read: both halves of the pair, and the sum of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen([u64; 3]);

impl Seen {
    /// Returns a violation as text if this state never existed, or if the same server had shown a later state before.
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

/// A read at a server that reported to be the primary. The server's next answer decides whether it was the primary throughout.
#[derive(Clone, Copy, Debug)]
struct AtPrimary {
    /// The term that the server reported before the read.
    term: u64,
    /// The number of increments acknowledged before the read began.
    acknowledged: u64,
    seen: u64,
    ended: Instant,
}

/// The verdict on a read at the reported primary.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The server has not answered since the read.
    Open,
    /// The server was not the primary throughout, or may not have been, so that the read may be stale.
    Unjudged,
    /// The read returned all required increments.
    Fresh,
    /// The read lacked increments. The text describes the violation.
    Stale(String),
}

impl AtPrimary {
    /// Judges the read. `latest` is the server's last answer, if it was positive. Suppose the server reports the same term before and after
    /// the read. Then no other member has acknowledged transactions in between, so that the read must not be stale.
    fn judge(&self, latest: Option<Yes>) -> Verdict {
        match latest {
            Some(yes) if yes.term != self.term => Verdict::Unjudged,
            Some(yes) if yes.asked < self.ended => Verdict::Open,
            Some(_) if self.seen >= self.acknowledged => Verdict::Fresh,
            Some(yes) => Verdict::Stale(format!(
                "is the primary of term {} and shows {} increments, when {} had been acknowledged before",
                yes.term, self.seen, self.acknowledged
            )),
            None => Verdict::Unjudged,
        }
    }
}

/// The readers' shared state.
#[derive(Debug)]
struct Shared {
    books: Books,
    stop: AtomicBool,
    looks: AtomicU64,
    fresh: AtomicU64,
    kept_off: AtomicU64,
    cut: Mutex<Option<Cut>>,
    /// Places where one read may return an older state than the previous read.
    goes_back: Mutex<BTreeSet<usize>>,
}

impl Shared {
    fn goes_back(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        let places = self.goes_back.lock();
        places.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the isolation because of which the server at `place` must now refuse readers, if any.
    fn kept_off(&self, place: usize) -> Option<Cut> {
        let cut = *self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        cut.filter(|cut| cut.keeps_off(place, Instant::now()))
    }
}

impl Readers {
    pub(crate) fn start(places: Vec<Place>, books: Books) -> Result<Self> {
        let shared = Arc::new(Shared {
            books,
            stop: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            fresh: AtomicU64::new(0),
            kept_off: AtomicU64::new(0),
            cut: Mutex::default(),
            goes_back: Mutex::default(),
        });
        let readers = places.into_iter().enumerate();
        let readers = readers.map(|(index, place)| read(index, place, shared.clone()));
        let thread = run_all(readers.collect())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns three numbers: all reads, the reads at a server that was the primary throughout, and how often an isolated primary refused
    /// readers when it had to.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let Shared {
            looks,
            fresh,
            kept_off,
            ..
        } = &*self.shared;
        [looks, fresh, kept_off].map(|count| count.load(Ordering::Relaxed))
    }

    /// Records that the primary at `place` is isolated from now on.
    pub(crate) fn cut_off(&self, place: usize) {
        let since = Instant::now();
        self.note(Some(Cut { place, since }));
    }

    /// Records that the server at `place` lost its power. It may restart with an older state than readers have seen.
    pub(crate) fn goes_back(&self, place: usize) {
        self.shared.goes_back().insert(place);
    }

    /// Records that no primary is isolated from now on. Called before the isolation ends.
    pub(crate) fn restored(&self) {
        self.note(None);
    }

    fn note(&self, cut: Option<Cut>) {
        let noted = self.shared.cut.lock();
        *noted.unwrap_or_else(PoisonError::into_inner) = cut;
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

async fn read(index: usize, place: Place, shared: Arc<Shared>) {
    let mut options = ConnectOptions::new(Endpoint::unix(&place.socket), CLIENT, CLIENT_PASSWORD);
    options.timeouts.statement = LIMIT;
    let mut connection: Option<Connection> = None;
    let mut before = None;
    let mut at_primary: Option<AtPrimary> = None;
    let mut session = shared.books.history.session();
    let mut turn = 0_u64;
    while !shared.stop.load(Ordering::Relaxed) {
        let claim = shared.books.direction.claim(index);
        match at_primary.map(|look| look.judge(claim)) {
            None | Some(Verdict::Open) => {}
            Some(verdict) => {
                at_primary = None;
                match verdict {
                    Verdict::Stale(words) => {
                        shared.books.findings.add(format!("{} {words}", place.name))
                    }
                    Verdict::Fresh => drop(shared.fresh.fetch_add(1, Ordering::Relaxed)),
                    Verdict::Open | Verdict::Unjudged => {}
                }
            }
        }
        if shared.goes_back().remove(&index) {
            before = None;
        }
        let kept_off = shared.kept_off(index);
        let Some(connected) = &mut connection else {
            connection = Connection::open(&options).await.ok();
            session = shared.books.history.session();
            if connection.is_none() {
                if kept_off.is_some() {
                    shared.kept_off.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
            continue;
        };
        turn += 1;
        if turn.is_multiple_of(LISTS_EVERY) && !shared.books.history.look(session, connected).await
        {
            connection = None;
            continue;
        }
        let acknowledged = shared.books.ledger.increments_acknowledged();
        match look(connected).await {
            Some(seen) => {
                shared.looks.fetch_add(1, Ordering::Relaxed);
                // The isolation began before the read and was still recorded after it, so that it lasted throughout the read.
                if let Some(cut) = kept_off.filter(|_| kept_off == shared.kept_off(index)) {
                    shared.books.findings.add(format!(
                        "{} answers readers {:?} after it was the primary and was cut off",
                        place.name,
                        cut.since.elapsed()
                    ));
                }
                if let Some(objection) = seen.objection(before) {
                    shared
                        .books
                        .findings
                        .add(format!("{} {objection}", place.name));
                }
                if let (Some(claim), None) = (claim, at_primary) {
                    at_primary = Some(AtPrimary {
                        term: claim.term,
                        acknowledged,
                        seen: seen.0[0],
                        ended: Instant::now(),
                    });
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
    fn a_look_between_two_yeses_of_one_term_sees_all_that_was_acknowledged() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let yes = |term, asked| {
            let (asked, heard) = (at(asked), at(asked + 1));
            Some(Yes { term, asked, heard })
        };
        let look = |seen| AtPrimary {
            term: 3,
            acknowledged: 10,
            seen,
            ended: at(20),
        };
        assert_eq!(look(10).judge(yes(3, 21)), Verdict::Fresh);
        assert_eq!(look(11).judge(yes(3, 21)), Verdict::Fresh);
        assert_eq!(
            look(9).judge(yes(3, 21)),
            Verdict::Stale(
                "is the primary of term 3 and shows 9 increments, when 10 had been acknowledged before"
                    .to_owned()
            )
        );
        assert_eq!(look(9).judge(yes(3, 19)), Verdict::Open, "asked before");
        assert_eq!(look(9).judge(yes(4, 21)), Verdict::Unjudged);
        assert_eq!(look(9).judge(None), Verdict::Unjudged);
    }

    #[test]
    fn readers_of_the_place_that_was_cut_off_are_kept_off_after_a_while() {
        let since = Instant::now();
        let cut = Cut { place: 1, since };
        assert!(!cut.keeps_off(1, since + KEPT_OFF_AFTER / 2));
        assert!(cut.keeps_off(1, since + KEPT_OFF_AFTER));
        assert!(!cut.keeps_off(0, since + KEPT_OFF_AFTER));
    }

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
