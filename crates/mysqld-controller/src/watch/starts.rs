//! Distinguishes starts of mysqld. Settings and comparisons from one start are invalid after another.

use std::time::Duration;

use binlog_format::gtid::GtidSet;
use tokio::time::Instant;
use uuid::Uuid;

/// One observation of the server's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sighting {
    pub(crate) uuid: Option<Uuid>,
    /// The server's id of the watcher's connection.
    pub(crate) connection_id: u32,
    /// Uptime in whole seconds: the difference of two times that are each truncated to seconds.
    pub(crate) uptime: Duration,
    /// When the server's clock began, if the server reports that.
    pub(crate) began_to_tick: Option<Span>,
    /// Beginning and end of the observation.
    pub(crate) looked: Span,
}

/// A moment that is known to the precision of a query's duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) earliest: Instant,
    pub(crate) latest: Instant,
}

impl Span {
    /// Returns when a clock began that showed `elapsed` at some moment during `asked`. `None` if the answer took too long to be useful, or
    /// the clock has run for longer than this machine.
    pub(crate) fn before(elapsed: Duration, asked: Self) -> Option<Self> {
        if asked.latest.duration_since(asked.earliest) > TOO_VAGUE {
            return None;
        }
        Some(Self {
            earliest: asked.earliest.checked_sub(elapsed)?,
            latest: asked.latest.checked_sub(elapsed)?,
        })
    }

    fn is_near(self, other: Self) -> bool {
        self.earliest <= other.latest + DRIFT && other.earliest <= self.latest + DRIFT
    }
}

/// The longest useful query of the server's clock. Twice this time plus [`DRIFT`] is less than mysqld needs from the start of its clock to
/// its first answer, and so less than the time between two starts that have both answered.
const TOO_VAGUE: Duration = Duration::from_millis(100);
/// The server's clock may be adjusted, and the member's is not. A difference of up to this much between two observations counts as the same
/// start.
const DRIFT: Duration = Duration::from_millis(50);
/// The tolerance for one start by uptime, which has whole seconds, and observations take some time.
const SAME_START: Duration = Duration::from_millis(2500);
/// Uptime may be too long by up to this much.
const TOO_LONG: Duration = Duration::from_secs(1);
/// A server with a shorter uptime may have been restarted within the tolerance of [`SAME_START`].
const YOUNG: Duration = Duration::from_secs(10);

/// Counts the starts of mysqld. Two observations on one connection belong to one start. If the server reports when its clock began, that
/// time distinguishes starts. Otherwise uptime and connection ids decide. If the uptime is no longer than the time since the last
/// observation, that counts as another start.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    last: Option<Sighting>,
    count: u64,
}

impl Starts {
    /// Returns the number of the observed start, from 1.
    pub(crate) fn see(&mut self, seen: Sighting) -> u64 {
        if !self.last.is_some_and(|last| is_same(last, seen)) {
            self.count += 1;
        }
        self.last = Some(seen);
        self.count
    }
}

fn is_same(last: Sighting, seen: Sighting) -> bool {
    if seen.uuid != last.uuid {
        return false;
    }
    let (now, then) = (started(seen), started(last));
    let apart = now.max(then).duration_since(now.min(then));
    if seen.connection_id == last.connection_id && apart < SAME_START {
        return true;
    }
    // On another connection, connection ids are ignored here, because they begin again with each start.
    if let (Some(began), Some(before)) = (seen.began_to_tick, last.began_to_tick) {
        return began.is_near(before);
    }
    let past = seen.looked.latest.duration_since(last.looked.earliest);
    let up_since_before = seen.uptime >= past + TOO_LONG;
    apart < SAME_START
        && seen.connection_id > last.connection_id
        && (up_since_before || seen.uptime >= YOUNG)
}

fn started(seen: Sighting) -> Instant {
    let now = seen.looked.latest;
    now.checked_sub(seen.uptime).unwrap_or(now)
}

// GTIDs that a running server has executed and that are no longer in `gtid_executed`, for example after `RESET BINARY LOGS AND GTIDS`. The
// server's data still contain these transactions. Replication by GTID would apply all of them again, and new transactions would reuse their
// numbers. Pure.

/// All GTIDs that were observed in `gtid_executed` during one start of a server.
#[derive(Debug, Default)]
pub(super) struct HadGtids {
    start: u64,
    gtids: GtidSet,
}

impl HadGtids {
    /// Returns the lost GTIDs. After another start, GTIDs may be missing without being lost: some were not durable, or were cut off before
    /// the start.
    pub(super) fn see(&mut self, start: u64, executed: &GtidSet) -> GtidSet {
        if self.start != start {
            (self.start, self.gtids) = (start, executed.clone());
        }
        let lost = self.gtids.difference(executed);
        self.gtids.union_with(executed);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Looks {
        starts: Starts,
        began: Instant,
    }

    impl Looks {
        fn new() -> Self {
            Self {
                starts: Starts::default(),
                began: Instant::now() + Duration::from_secs(10_000),
            }
        }

        /// Observes at `at` milliseconds, for 20 milliseconds, a server with `uptime` seconds whose clock shows `ticks` milliseconds.
        fn see(&mut self, uptime: u64, ticks: Option<u64>, connection_id: u32, at: u64) -> u64 {
            let asked = Span {
                earliest: self.began + Duration::from_millis(at),
                latest: self.began + Duration::from_millis(at + 20),
            };
            let ticks = ticks.map(Duration::from_millis);
            self.starts.see(Sighting {
                uuid: None,
                connection_id,
                uptime: Duration::from_secs(uptime),
                began_to_tick: ticks.and_then(|ticks| Span::before(ticks, asked)),
                looked: asked,
            })
        }
    }

    #[test]
    fn restarts_are_told_from_reconnects_by_uptime() {
        let mut looks = Looks::new();
        let mut see = |uptime, id, seconds: u64| looks.see(uptime, None, id, seconds * 1000);
        assert_eq!(see(100, 9, 0), 1);
        assert_eq!(see(101, 9, 1), 1);
        // The clock of mysqld has whole seconds.
        assert_eq!(see(103, 9, 2), 1);
        // A new connection to the same server.
        assert_eq!(see(110, 12, 10), 1);
        // mysqld was restarted.
        assert_eq!(see(3, 8, 30), 2);
        assert_eq!(see(4, 8, 31), 2);
        // mysqld was restarted again, so soon that the uptime does not show it.
        assert_eq!(see(1, 9, 32), 3);
        // A connection id that is not higher belongs to another start.
        assert_eq!(see(71, 10, 102), 3);
        assert_eq!(see(72, 10, 103), 3);
        assert_eq!(see(73, 9, 104), 4);
    }

    #[test]
    fn a_young_server_that_is_looked_at_by_new_connections_is_one_start() {
        let mut looks = Looks::new();
        let mut see = |uptime, id, at| looks.see(uptime, None, id, at);
        assert_eq!(see(2, 8, 0), 1);
        assert_eq!(see(3, 9, 1000), 1);
        assert_eq!(see(4, 10, 2000), 1);
        // A start that may have happened since the last observation counts as one.
        assert_eq!(see(2, 11, 4100), 2);
        assert_eq!(see(3, 12, 5000), 2);
    }

    #[test]
    fn a_server_that_tells_its_time_is_one_start_however_young_it_is() {
        let mut looks = Looks::new();
        let mut see = |uptime, ticks, id, at| looks.see(uptime, Some(ticks), id, at);
        // Uptime alone would indicate another start each time.
        assert_eq!(see(0, 700, 8, 0), 1);
        assert_eq!(see(1, 1715, 9, 1010), 1);
        assert_eq!(see(2, 2740, 10, 2030), 1);
        // mysqld was killed and returned within half a second, and its connection ids are higher by chance.
        assert_eq!(see(0, 350, 11, 2500), 2);
        assert_eq!(see(1, 1350, 8, 3500), 2, "nor do the numbers count");
    }

    #[test]
    fn an_answer_that_was_long_in_coming_says_nothing() {
        let began = Instant::now();
        let asked = |milliseconds| Span {
            earliest: began,
            latest: began + Duration::from_millis(milliseconds),
        };
        assert!(Span::before(Duration::ZERO, asked(100)).is_some());
        assert!(Span::before(Duration::ZERO, asked(101)).is_none());
    }
}

#[cfg(test)]
mod lost_gtids_tests {
    use super::*;

    #[test]
    fn what_one_start_had_and_has_no_more_is_lost() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let set = |numbers: &str| match numbers {
            "" => GtidSet::default(),
            _ => format!("{UUID}:{numbers}").parse().unwrap(),
        };
        let mut had = HadGtids::default();
        for (start, executed, lost) in [
            (1, "1-10", ""),
            (1, "1-12", ""),
            // The server was reset, and assigns its numbers again.
            (1, "", "1-12"),
            (1, "1-2", "3-12"),
            // Another start.
            (2, "1-2", ""),
            (2, "1-5", ""),
            (3, "", ""),
            (3, "1", ""),
        ] {
            assert_eq!(
                had.see(start, &set(executed)),
                set(lost),
                "{start}: {executed}"
            );
        }
    }
}
