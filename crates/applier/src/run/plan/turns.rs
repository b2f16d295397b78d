//! Decides whether one worker runs alone, with many transactions in each packet, or all workers run concurrently: whichever was
//! faster in the last measurement.
//!
//! Commits are in the log's order, so a commit is requested only after the previous one is answered. For small transactions the
//! wait for these answers dominates: one session with whole batches is then faster than several sessions that take turns. Several
//! sessions are faster for large transactions, on a database with idle processors, or where the next batch takes its turn early
//! and a sync of the log takes long. The result depends on the machine, its disk and the log, so it is measured: each mode for
//! `TRIAL`, then the faster one runs for `KEPT`.

use std::time::Duration;

use crate::backend::Turn;
use crate::batch::BatchSeq;

/// The workers' mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PacingMode {
    /// One worker at a time, with whole batches.
    Alone,
    #[default]
    All,
}

/// How long each mode is measured.
const TRIAL: Duration = Duration::from_millis(150);
/// How long the faster mode is kept before both are measured again.
const KEPT: Duration = Duration::from_millis(2_700);

/// The faster mode, and the mode being measured. Pure: times are durations since the run began.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// The mode since the last update.
    pub(super) mode: PacingMode,
    /// True if the current mode is the faster one, and is not being measured.
    is_kept: bool,
    since: Duration,
    /// The number of commits at the time `since`.
    committed: u64,
    /// Transactions per second that all workers reached in the last measurement.
    all_rate: f64,
}

impl Pacing {
    /// Returns the mode from now on. Without a backlog there is nothing to measure, and all workers run, so that an arriving
    /// transaction begins immediately.
    pub(super) fn update(&mut self, now: Duration, committed: u64, backlog: bool) -> PacingMode {
        if !backlog {
            self.enter(PacingMode::All, false, now, committed);
            return PacingMode::All;
        }
        let gone = now.saturating_sub(self.since);
        let rate = committed.saturating_sub(self.committed) as f64 / gone.as_secs_f64().max(1e-9);
        match (self.mode, self.is_kept) {
            (_, true) if gone >= KEPT => self.enter(PacingMode::All, false, now, committed),
            (PacingMode::All, false) if gone >= TRIAL => {
                self.all_rate = rate;
                self.enter(PacingMode::Alone, false, now, committed);
            }
            (PacingMode::Alone, false) if gone >= TRIAL => {
                let faster = match rate > self.all_rate {
                    true => PacingMode::Alone,
                    false => PacingMode::All,
                };
                self.enter(faster, true, now, committed);
            }
            _ => {}
        }
        self.mode
    }

    fn enter(&mut self, mode: PacingMode, is_kept: bool, now: Duration, committed: u64) {
        (self.mode, self.is_kept) = (mode, is_kept);
        (self.since, self.committed) = (now, committed);
    }
}

// Which session may commit before the previous commit is answered: the database itself keeps the commits in order.
//
// ```text
// session of k      turn k │ COMMIT k ········ force of the log ·│ answer
//                     └─ told ─┐
// session of k+1               turn k+1 (waits for k) │ COMMIT k+1 ··│ answer      both share a force
// ```
//
// The database grants k+1 its turn when k is committed in its memory, and refuses it if k failed
// (`docs/decisions/0032-pass-the-commit-turn-through-one-innodb-row.md`). So k+1 requests its turn only when it is known that k
// has taken its turn.

/// Tracks which batch the next one may follow before the commit is answered.
#[derive(Debug)]
pub(in crate::run) struct Passing {
    /// True if the database supports commits in turn.
    pub(super) on: bool,
    /// The last batch that has taken its turn and has not failed since.
    last: Option<BatchSeq>,
}

impl Passing {
    pub(super) fn new(on: bool) -> Self {
        Self { on, last: None }
    }

    /// Records that a batch has taken its turn.
    pub(in crate::run) fn taken(&mut self, seq: BatchSeq) {
        self.last = Some(seq);
    }

    /// Records that a batch was rolled back: no batch may follow it, even if it had taken its turn.
    pub(super) fn failed(&mut self, seq: BatchSeq) {
        if self.last == Some(seq) {
            self.last = None;
        }
    }

    /// Returns how a batch commits in its turn; `None` if it cannot yet. `base` is the first uncommitted batch.
    pub(super) fn turn(&self, seq: BatchSeq, base: BatchSeq) -> Option<Turn> {
        if seq == base {
            return self.on.then_some(Turn::First);
        }
        let before = self.last.map(BatchSeq::next) == Some(seq);
        before.then_some(Turn::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the share of `seconds` in mode `Alone`, if the modes reach these rates of transactions per second.
    fn share_alone(alone: u64, all_rate: u64, seconds: u64, backlog: bool) -> f64 {
        let mut pacing = Pacing::default();
        let (mut committed, mut by_alone) = (0, 0);
        for ms in 0..seconds * 1000 {
            let mode = pacing.update(Duration::from_millis(ms), committed / 1000, backlog);
            match mode {
                PacingMode::Alone => (committed, by_alone) = (committed + alone, by_alone + 1),
                PacingMode::All => committed += all_rate,
            }
        }
        f64::from(by_alone) / (seconds * 1000) as f64
    }

    #[test]
    fn the_faster_mode_is_used_nearly_all_the_time() {
        let alone = share_alone(5_000, 3_000, 30, true);
        assert!((0.93..0.96).contains(&alone), "{alone}");
        let alone = share_alone(3_000, 5_000, 30, true);
        assert!((0.04..0.07).contains(&alone), "{alone}");
    }

    #[test]
    fn without_a_backlog_all_workers_run() {
        assert_eq!(share_alone(5_000, 3_000, 30, false), 0.0);
    }

    #[test]
    fn the_mode_changes_when_the_other_becomes_faster() {
        let mut pacing = Pacing::default();
        let mut committed = 0;
        let mut last = PacingMode::All;
        for ms in 0..20_000 {
            last = pacing.update(Duration::from_millis(ms), committed / 1000, true);
            let large = ms >= 10_000;
            committed += match (last, large) {
                (PacingMode::Alone, false) | (PacingMode::All, true) => 4_000,
                _ => 1_000,
            };
        }
        assert_eq!(last, PacingMode::All);
    }

    #[test]
    fn a_turn_follows_the_last_one_taken_or_begins_at_the_front() {
        let unavailable = Passing::new(false);
        assert_eq!(unavailable.turn(BatchSeq(5), BatchSeq(5)), None);
        let mut passing = Passing::new(true);
        assert_eq!(passing.turn(BatchSeq(5), BatchSeq(5)), Some(Turn::First));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), None);
        passing.taken(BatchSeq(5));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), Some(Turn::Next));
        assert_eq!(passing.turn(BatchSeq(7), BatchSeq(5)), None);
    }

    #[test]
    fn no_batch_follows_a_failed_one() {
        let mut passing = Passing::new(false);
        passing.taken(BatchSeq(5));
        passing.failed(BatchSeq(6));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), Some(Turn::Next));
        passing.failed(BatchSeq(5));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), None);
    }
}
