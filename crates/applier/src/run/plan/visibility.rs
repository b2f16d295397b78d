//! What readers of the target see: whose commit may be asked for now. The operator's choice is
//! [`CommitOrder`], in `run::options`.

use std::time::Duration;

use crate::backend::Turn;
use crate::batch::BatchSeq;
use crate::run::options::CommitOrder;

/// The order of commits. Moments are time since the run began.
#[derive(Debug)]
pub(super) enum Turns {
    Log,
    Snapshot(PrefixPoints),
}

impl Turns {
    /// `first` is the first transaction of the run.
    pub(super) fn new(order: CommitOrder, first: BatchSeq) -> Self {
        match order {
            CommitOrder::Log => Self::Log,
            CommitOrder::Snapshot { interval } => {
                Self::Snapshot(PrefixPoints::new(interval, first))
            }
        }
    }

    /// Nothing is committed behind the last commit that was asked for. Returns the last transaction that may be.
    pub(super) fn stop(&mut self, commits: BatchSeq) -> Option<BatchSeq> {
        match self {
            Self::Log => None,
            Self::Snapshot(points) => {
                points.next = points.next.min(commits.max(points.last));
                Some(points.next)
            }
        }
    }

    /// Whether a transaction may be committed, when `base` is the first that is not.
    pub(super) fn may_commit(&self, seq: BatchSeq, base: BatchSeq) -> bool {
        match self {
            Self::Log => seq == base,
            Self::Snapshot(points) => points.may_commit(seq),
        }
    }
}

/// The most transactions that a prefix point is ahead of the last one that is committed with all before it.
const MOST_AHEAD: u64 = 1 << 16;

/// Where the prefix points of `commit_order = "snapshot"` are.
///
/// ```text
///  last           next
///  ──●──────────────○─────────►  sequence numbers
///  snapshot  commits   writes only
/// ```
///
/// C5-MyRocks chooses the next point ahead, by an estimate of what will be committed until it is due. When it is reached too
/// early, it is moved further on; when it is due and far away, it is moved back to the last commit that was begun.
///
/// A run that was killed leaves transactions out that are before committed ones. The next run cannot tell from a set of
/// GTIDs whether that is so, but there are no more of them than a point is ahead: as long as it has neither committed that
/// many nor all that the source has, what is committed need not be a prefix of the log, and no point is taken.
#[derive(Debug)]
pub(super) struct PrefixPoints {
    interval: Duration,
    /// Everything up to here is in the readers' snapshots.
    last: BatchSeq,
    last_at: Duration,
    /// Nothing behind this one is committed before the point is taken.
    next: BatchSeq,
    /// The backend is at the point.
    taking: bool,
    /// There are snapshots. The first ones do not wait for their time, nor for anything new.
    begun: bool,
    estimate: u64,
    /// No point is taken before everything up to here is committed.
    not_before: BatchSeq,
}

impl PrefixPoints {
    fn new(interval: Duration, first: BatchSeq) -> Self {
        let last = BatchSeq(first.0.saturating_sub(1));
        Self {
            interval,
            last,
            last_at: Duration::ZERO,
            next: last.next(),
            taking: false,
            begun: false,
            estimate: 1,
            not_before: match last {
                // Nothing was there before.
                BatchSeq(0) => last,
                BatchSeq(last) => BatchSeq(last.saturating_add(MOST_AHEAD)),
            },
        }
    }

    fn may_commit(&self, seq: BatchSeq) -> bool {
        !self.taking && seq <= self.next
    }

    /// Looks whether the point is to be taken now. `base` is the first transaction that is not committed, `commits` the last
    /// one whose commit was asked for. At the end, a point does not wait for its time.
    pub(super) fn due(
        &mut self,
        now: Duration,
        base: BatchSeq,
        commits: BatchSeq,
        end: bool,
    ) -> bool {
        if self.taking {
            return false;
        }
        let done = BatchSeq(base.0.saturating_sub(1));
        if end {
            self.not_before = self.not_before.min(done);
        }
        let early = self.begun && now < self.last_at.saturating_add(self.interval) && !end;
        if early || done < self.not_before {
            if done >= self.next {
                // The estimate was too low. While no point may be taken at all, nothing else would ever raise it.
                self.estimate = self.estimate.saturating_mul(2).min(MOST_AHEAD);
                self.next = BatchSeq(done.0.saturating_add(self.estimate));
            }
            return false;
        }
        if self.begun && done <= self.last && commits <= self.last {
            return false;
        }
        self.next = self.next.min(commits.max(done));
        self.taking = done >= self.next;
        self.taking
    }

    /// Snapshots are taken: the next point is placed by the rate of commits since the last one.
    pub(super) fn taken(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last_at).max(self.interval);
        let count = (self.next.0 - self.last.0) as f64;
        let rate = count * self.interval.as_secs_f64() / passed.as_secs_f64();
        self.estimate = (self.estimate.saturating_add(rate as u64) / 2).clamp(1, MOST_AHEAD);
        self.taking = false;
        self.begun = true;
        self.last = self.next;
        self.last_at = now;
        self.next = BatchSeq(self.last.0.saturating_add(self.estimate));
    }

    /// All that the source has is committed: a prefix, whatever was left out before.
    pub(super) fn caught_up(&mut self, base: BatchSeq) {
        self.not_before = self.not_before.min(BatchSeq(base.0.saturating_sub(1)));
    }

    /// When to look again, if something is committed that no snapshot has.
    pub(super) fn look_again(&self, base: BatchSeq) -> Option<Duration> {
        let something = base.0 > self.last.0 + 1 && !self.taking;
        something.then(|| self.last_at.saturating_add(self.interval))
    }
}

// Who may commit in the log's order before the commit before it is answered: the database passes on the turn.
//
// ```text
// session of k      turn k │ COMMIT k ········ force of the log ·│ answer
//                     └─ told ─┐
// session of k+1               turn k+1 (waits for k) │ COMMIT k+1 ··│ answer      both share a force
// ```
//
// The database lets k+1 have its turn when k is committed in its memory, and refuses it when k failed
// (`docs/decisions/0032-pass-the-commit-turn-through-one-innodb-row.md`). So k+1 is only asked when the turn of k is known to be taken.

/// Up to which batch the database was given commits whose turn comes there.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// The database can do it.
    pub(super) on: bool,
    /// The last one that has taken its turn and has not failed since.
    last: Option<BatchSeq>,
}

impl Passing {
    /// A batch has taken its turn.
    pub(super) fn taken(&mut self, seq: BatchSeq) {
        self.last = Some(seq);
    }

    /// A batch was rolled back: nothing may follow it, whatever it had taken.
    pub(super) fn failed(&mut self, seq: BatchSeq) {
        if self.last == Some(seq) {
            self.last = None;
        }
    }

    /// How a batch commits in its turn, if it is to; `base` is the first that is not committed.
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

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn points() -> PrefixPoints {
        let mut points = PrefixPoints::new(MS(10), BatchSeq(1));
        assert!(points.due(MS(0), BatchSeq(1), BatchSeq(0), false));
        points.taken(MS(0));
        points
    }

    #[test]
    fn the_first_point_is_taken_at_once_whatever_is_there() {
        let mut points = PrefixPoints::new(MS(10), BatchSeq(5));
        points.caught_up(BatchSeq(5));
        assert!(points.due(MS(0), BatchSeq(5), BatchSeq(4), false));
        points.taken(MS(0));
        assert_eq!(points.last, BatchSeq(4));
        assert!(!points.due(MS(50), BatchSeq(5), BatchSeq(4), false));
    }

    #[test]
    fn the_logs_order_gives_the_turn_to_the_first() {
        let turns = Turns::new(CommitOrder::Log, BatchSeq(5));
        assert!(turns.may_commit(BatchSeq(5), BatchSeq(5)));
        assert!(!turns.may_commit(BatchSeq(6), BatchSeq(5)));
    }

    #[test]
    fn a_point_that_is_reached_early_moves_on() {
        let mut points = points();
        assert!(points.may_commit(BatchSeq(1)) && !points.may_commit(BatchSeq(2)));
        assert!(!points.due(MS(1), BatchSeq(2), BatchSeq(1), false));
        assert!(points.may_commit(BatchSeq(3)) && !points.may_commit(BatchSeq(4)));
    }

    #[test]
    fn commits_are_free_while_no_point_may_be_taken() {
        let mut points = PrefixPoints::new(MS(10), BatchSeq(100));
        let mut looks = 0;
        let mut done = 99;
        while done < 10_000 {
            assert!(!points.due(MS(50), BatchSeq(done + 1), BatchSeq(done), false));
            done = points.next.0;
            looks += 1;
        }
        assert!(looks < 20, "one after the other: {looks} looks");
    }

    #[test]
    fn a_point_that_is_due_is_moved_back_to_the_last_commit_begun() {
        let mut points = points();
        points.next = BatchSeq(100);
        assert!(!points.due(MS(10), BatchSeq(4), BatchSeq(6), false));
        assert!(points.may_commit(BatchSeq(6)) && !points.may_commit(BatchSeq(7)));
        assert!(points.due(MS(11), BatchSeq(7), BatchSeq(6), false));
        assert!(
            !points.may_commit(BatchSeq(7)),
            "nothing commits while it is taken"
        );
        assert!(!points.due(MS(12), BatchSeq(7), BatchSeq(6), false));
        points.taken(MS(12));
        assert_eq!(points.last, BatchSeq(6));
        assert!(points.may_commit(BatchSeq(7)));
    }

    #[test]
    fn the_estimate_follows_what_is_committed() {
        let mut points = points();
        let mut now = MS(0);
        let mut base = 1;
        for _ in 0..12 {
            now += MS(10);
            base += 500;
            let done = BatchSeq(base - 1);
            points.next = points.next.max(done);
            assert!(points.due(now, BatchSeq(base), done, false));
            points.taken(now);
        }
        assert!(
            (450..=500).contains(&points.estimate),
            "{}",
            points.estimate
        );
    }

    #[test]
    fn a_run_that_goes_on_takes_no_point_before_what_was_left_out_must_be_there() {
        let mut points = PrefixPoints::new(MS(10), BatchSeq(100));
        assert!(!points.due(MS(50), BatchSeq(103), BatchSeq(102), false));
        assert!(points.may_commit(BatchSeq(103)));
        points.caught_up(BatchSeq(104));
        assert!(points.due(MS(51), BatchSeq(104), BatchSeq(103), false));
        let mut points = PrefixPoints::new(MS(10), BatchSeq(100));
        let base = BatchSeq(100 + MOST_AHEAD);
        points.next = BatchSeq(base.0 - 1);
        assert!(points.due(MS(50), base, points.next, false));
    }

    #[test]
    fn without_anything_new_there_is_no_point() {
        let mut points = points();
        assert!(!points.due(MS(500), BatchSeq(1), BatchSeq(0), true));
        assert_eq!(points.look_again(BatchSeq(1)), None);
        assert_eq!(points.look_again(BatchSeq(2)), Some(MS(10)));
        assert!(!points.due(MS(5), BatchSeq(2), BatchSeq(1), false));
        assert!(
            points.due(MS(5), BatchSeq(2), BatchSeq(1), true),
            "the end does not wait"
        );
    }
}

#[cfg(test)]
mod passing_tests {
    use super::*;

    #[test]
    fn a_turn_follows_the_one_that_was_taken_last_or_begins_at_the_front() {
        let mut passing = Passing::default();
        assert_eq!(
            passing.turn(BatchSeq(5), BatchSeq(5)),
            None,
            "not available"
        );
        passing.on = true;
        assert_eq!(passing.turn(BatchSeq(5), BatchSeq(5)), Some(Turn::First));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), None);
        passing.taken(BatchSeq(5));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), Some(Turn::Next));
        assert_eq!(passing.turn(BatchSeq(7), BatchSeq(5)), None);
    }

    #[test]
    fn nothing_follows_what_failed() {
        let mut passing = Passing::default();
        passing.taken(BatchSeq(5));
        passing.failed(BatchSeq(6));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), Some(Turn::Next));
        passing.failed(BatchSeq(5));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), None);
    }
}
