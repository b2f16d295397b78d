//! How much the log may still write. Pure: whoever writes tells what it wrote, and asks the file
//! system for the free space when it is told to.

/// After this many bytes the free space is looked at again, because others write to the disk, too.
const LOOK_EVERY_BYTES: u64 = 16 << 20;

/// The limits of a log and what is known of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskBudget {
    limit: Option<u64>,
    reserve: u64,
    alarm_percent: u8,
    log_bytes: u64,
    free: u64,
    written_since_look: u64,
}

impl DiskBudget {
    pub(crate) fn new(
        limit: Option<u64>,
        reserve: u64,
        alarm_percent: u8,
        log_bytes: u64,
        free: u64,
    ) -> Self {
        Self {
            limit,
            reserve,
            alarm_percent,
            log_bytes,
            free,
            written_since_look: 0,
        }
    }

    /// Bytes that may still be written.
    pub(crate) fn left(&self) -> u64 {
        let by_limit = self
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(self.log_bytes));
        by_limit.min(self.free_now().saturating_sub(self.reserve))
    }

    /// Whether to look at the free space before writing this many bytes.
    pub(crate) fn wants_look(&self, needed: u64) -> bool {
        self.written_since_look + needed >= LOOK_EVERY_BYTES || needed > self.left()
    }

    /// What the file system said just now.
    pub(crate) fn looked(&mut self, free: u64) {
        self.free = free;
        self.written_since_look = 0;
    }

    pub(crate) fn wrote(&mut self, bytes: u64) {
        self.log_bytes += bytes;
        self.written_since_look += bytes;
    }

    pub(crate) fn removed(&mut self, bytes: u64) {
        self.log_bytes = self.log_bytes.saturating_sub(bytes);
    }

    /// Whether the alarm percentage of the limit, or of the space around the reserve, is used up.
    pub(crate) fn alarm(&self) -> bool {
        let used = |used: u64, of: u64| {
            u128::from(used) * 100 >= u128::from(of) * u128::from(self.alarm_percent)
        };
        let limit = self.limit.is_some_and(|limit| used(self.log_bytes, limit));
        // The space is what the log has and what it could still get.
        let space = (self.log_bytes + self.free_now()).saturating_sub(self.reserve);
        limit || used(self.log_bytes, space)
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    pub(crate) fn free_now(&self) -> u64 {
        self.free.saturating_sub(self.written_since_look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_bound_counts() {
        let mut budget = DiskBudget::new(Some(1_000), 100, 90, 200, 700);
        assert_eq!(budget.left(), 600);
        budget.wrote(500);
        assert_eq!(
            (budget.left(), budget.log_bytes(), budget.free_now()),
            (100, 700, 200)
        );
        budget.looked(5_000);
        assert_eq!(budget.left(), 300);
        budget.removed(400);
        assert_eq!(budget.left(), 700);
    }

    #[test]
    fn alarm_comes_before_the_end() {
        let mut budget = DiskBudget::new(Some(1_000), 0, 90, 899, 1 << 40);
        assert!(!budget.alarm());
        budget.wrote(1);
        assert!(budget.alarm() && budget.left() == 100);
        let mut budget = DiskBudget::new(None, 100, 90, 0, 1_100);
        budget.wrote(899);
        assert!(!budget.alarm());
        budget.wrote(1);
        assert!(budget.alarm() && budget.left() == 100);
    }

    #[test]
    fn the_disk_is_looked_at_before_refusing_and_now_and_then() {
        let mut budget = DiskBudget::new(None, 0, 90, 0, 1 << 40);
        assert!(!budget.wants_look(1_000));
        budget.wrote(LOOK_EVERY_BYTES);
        assert!(budget.wants_look(0));
        budget.looked(10);
        assert!(!budget.wants_look(10) && budget.wants_look(11));
    }
}
