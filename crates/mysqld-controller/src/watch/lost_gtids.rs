//! GTIDs that a running server had executed and no longer has in `gtid_executed`, as after `RESET BINARY LOGS AND GTIDS`. Its data
//! are unchanged and no longer described: replication by GTID would apply all of it again, and new transactions get the
//! numbers of old ones. Pure.

use binlog_format::gtid::GtidSet;

/// All of `gtid_executed` observed during one start of a server.
#[derive(Debug, Default)]
pub(super) struct HadGtids {
    start: u64,
    gtids: GtidSet,
}

impl HadGtids {
    /// Returns the lost GTIDs. Another start may have fewer: some were not durable, or were cut off before it.
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
            // It was reset, and assigns its numbers again.
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
