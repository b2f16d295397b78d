//! What is under way: things that come out at their time, and in the order in which they went in where times are equal. Pure.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

/// See the module.
#[derive(Debug)]
pub struct DelayLine<T> {
    under_way: BinaryHeap<UnderWay<T>>,
    pushed: u64,
}

#[derive(Debug)]
struct UnderWay<T> {
    due: Instant,
    serial: u64,
    what: T,
}

impl<T> DelayLine<T> {
    /// Nothing is under way.
    #[must_use]
    pub fn new() -> Self {
        Self {
            under_way: BinaryHeap::new(),
            pushed: 0,
        }
    }

    /// Puts something in that is due at `due`.
    pub fn push(&mut self, due: Instant, what: T) {
        self.under_way.push(UnderWay {
            due,
            serial: self.pushed,
            what,
        });
        self.pushed += 1;
    }

    /// Takes the first thing out that is due by `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.under_way.pop().map(|first| first.what)
    }

    /// When the next thing is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.under_way.peek().map(|first| first.due)
    }
}

impl<T> Default for DelayLine<T> {
    fn default() -> Self {
        Self::new()
    }
}

// The heap gives its greatest out first, so that the earliest must be the greatest.
impl<T> Ord for UnderWay<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.serial).cmp(&(self.due, self.serial))
    }
}

impl<T> PartialOrd for UnderWay<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for UnderWay<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for UnderWay<T> {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn things_come_out_by_time_and_then_by_order() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut line = DelayLine::new();
        for (ms, what) in [(20, 'c'), (10, 'a'), (30, 'e'), (10, 'b'), (20, 'd')] {
            line.push(at(ms), what);
        }
        assert_eq!(line.next_due(), Some(at(10)));
        assert_eq!(line.pop_due(at(9)), None);
        let mut out = String::new();
        while let Some(what) = line.pop_due(at(20)) {
            out.push(what);
        }
        assert_eq!(out, "abcd");
        assert_eq!(line.next_due(), Some(at(30)));
    }
}
