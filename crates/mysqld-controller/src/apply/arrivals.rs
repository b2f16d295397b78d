//! Records when transactions were committed in this member's log, by this host's clock. The record gives the age of transactions that
//! mysqld has not executed. The log's timestamps come from the primary's clock, which differs from this host's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use binlog_format::gtid::{Gtid, GtidSet};
use tokio::time::Instant;

use crate::ring::Ring;

/// Interval between two checks of the log under continuous commits.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Maximum number of moments. Above this number, neighbouring moments are merged. A merged moment is no longer than 1/[`PART`] of its age,
/// measured from its start.
const MOST: usize = 1024;
const PART: u32 = 16;

/// The arrival times of transactions. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// Time of the first and of the last check of the log.
    looked: Option<(Instant, Instant)>,
    /// The log's GTIDs at the last check.
    had: GtidSet,
    /// In time order.
    moments: VecDeque<Moment>,
}

/// Transactions that were absent at `after` and present at `by`.
#[derive(Debug)]
struct Moment {
    gtids: GtidSet,
    after: Instant,
    by: Instant,
}

impl Arrivals {
    /// Checks the log after each commit. Never returns.
    pub(super) async fn watch(&self, ring: &impl Ring) {
        let mut committed = ring.committed();
        loop {
            // Other tasks handle a failing log or a stopping member.
            if let Ok(log) = ring.log().await {
                self.lock().look(log.gtids, Instant::now());
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            match committed.has_changed() {
                // No new transaction has arrived until now.
                Ok(false) => {
                    if committed.changed().await.is_err() {
                        return;
                    }
                    self.lock().nothing_new_until(Instant::now());
                }
                Ok(true) => {}
                Err(_) => return,
            }
            committed.mark_unchanged();
        }
    }

    /// Returns how long this transaction has been in the log: the age by its timestamp, limited to the range that the checks observed.
    /// `None`: unknown.
    pub(super) fn age(&self, gtid: &Gtid, by_timestamp: Option<Duration>) -> Option<Duration> {
        self.lock().age(gtid, by_timestamp, Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // No operation under this lock can leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn look(&mut self, gtids: GtidSet, now: Instant) {
        let Some((first, last)) = self.looked else {
            self.looked = Some((now, now));
            self.had = gtids;
            return;
        };
        self.looked = Some((first, now));
        let new = gtids.difference(&self.had);
        self.had = gtids;
        if new.is_empty() {
            return;
        }
        if self.moments.len() >= MOST {
            self.thin_out(now);
        }
        self.moments.push_back(Moment {
            gtids: new,
            after: last,
            by: now,
        });
    }

    fn nothing_new_until(&mut self, now: Instant) {
        if let Some((_, last)) = &mut self.looked {
            *last = now;
        }
    }

    fn age(&self, gtid: &Gtid, by_timestamp: Option<Duration>, now: Instant) -> Option<Duration> {
        let (first, last) = self.looked?;
        // A transaction that was truncated and arrived again keeps its first age.
        let mut moments = self.moments.iter();
        let (after, by) = match moments.find(|moment| moment.gtids.contains(gtid)) {
            Some(moment) => (Some(moment.after), moment.by),
            None if self.had.contains(gtid) => (None, first),
            None => (Some(last), now),
        };
        let least = now.duration_since(by);
        let most = after.map(|after| now.duration_since(after));
        let Some(told) = by_timestamp else {
            return most;
        };
        Some(told.max(least).min(most.unwrap_or(Duration::MAX)))
    }

    fn thin_out(&mut self, now: Instant) {
        let mut thinned: VecDeque<Moment> = VecDeque::with_capacity(MOST);
        for moment in self.moments.drain(..) {
            match thinned.back_mut() {
                Some(before)
                    if moment.by - before.after <= now.duration_since(before.after) / PART =>
                {
                    before.gtids.union_with(&moment.gtids);
                    before.by = moment.by;
                }
                _ => thinned.push_back(moment),
            }
        }
        self.moments = thinned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(last: u64) -> GtidSet {
        format!("11111111-1111-1111-1111-111111111111:1-{last}")
            .parse()
            .unwrap()
    }

    fn gtid(gno: u64) -> Gtid {
        let set: GtidSet = format!("11111111-1111-1111-1111-111111111111:{gno}")
            .parse()
            .unwrap();
        set.iter().next().unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_timestamp_is_believed_as_far_as_it_agrees_with_what_was_seen() {
        let began = Instant::now();
        let mut memory = Memory::default();
        assert_eq!(memory.age(&gtid(1), Some(ms(5)), began), None);
        memory.look(log(10), began);
        memory.nothing_new_until(began + ms(1000));
        memory.look(log(12), began + ms(1100));
        memory.look(log(13), began + ms(1200));
        let now = began + ms(2000);
        let hour = ms(3_600_000);
        let table = [
            // Between 900 and 1000 ms ago.
            (12, Some(ms(950)), Some(ms(950))),
            (12, Some(ms(0)), Some(ms(900))),
            (12, Some(hour), Some(ms(1000))),
            (12, None, Some(ms(1000))),
            (13, Some(hour), Some(ms(900))),
            // The transaction was present when the member began to check.
            (10, Some(ms(0)), Some(ms(2000))),
            (10, Some(hour), Some(hour)),
            (10, None, None),
            // The transaction arrived after the last check.
            (14, Some(ms(0)), Some(ms(0))),
            (14, Some(hour), Some(ms(800))),
        ];
        for (number, told, expected) in table {
            assert_eq!(
                memory.age(&gtid(number), told, now),
                expected,
                "{number} {told:?}"
            );
        }
    }

    #[test]
    fn what_was_cut_off_and_came_again_is_as_old_as_the_first_time() {
        let began = Instant::now();
        let mut memory = Memory::default();
        for (last, at) in [(1, 0), (2, 100), (1, 200), (2, 300)] {
            memory.look(log(last), began + ms(at));
        }
        assert_eq!(
            memory.age(&gtid(2), Some(ms(0)), began + ms(400)),
            Some(ms(300))
        );
    }

    #[test]
    fn a_day_of_commits_is_remembered_to_a_part_of_its_age() {
        let began = Instant::now();
        let mut memory = Memory::default();
        let looks = 864_000;
        for look in 0..looks {
            memory.look(log(look + 1), began + ms(100 * look));
        }
        assert!(memory.moments.len() <= MOST, "{}", memory.moments.len());
        let now = began + ms(100 * looks);
        for look in (1..looks).step_by(997) {
            let really = ms(100 * (looks - look));
            let [least, most] = [ms(0), ms(u64::from(u32::MAX))]
                .map(|told| memory.age(&gtid(look + 1), Some(told), now).unwrap());
            assert!(
                least <= really && really <= most,
                "{look}: {least:?} {most:?}"
            );
            assert!(
                most - least <= really / (PART - 1) + ms(200),
                "{look}: {least:?} {most:?}"
            );
        }
    }
}
