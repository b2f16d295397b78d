//! The state of a log that was written without sync, from its record ([`UnsyncedRun`]) and the machine's boot at that time. The end of the
//! log does not show it: a file system usually loses a tail at the end of a write, which ends an entry.

use raft_types::OpId;

use crate::hard_state::UnsyncedRun;
use crate::options::Durability;
use crate::recovery::recovery_cases::{MetaState, Verdict};

/// The state, at the next start, of entries that were acknowledged without a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsynced {
    /// There were none on record, or they were synced when the log was closed.
    NotNoted,
    /// The machine has not restarted: data written to its operating system is present.
    AllThere,
    /// Some may be missing.
    MayBeMissing,
}

impl Unsynced {
    /// Compares the record with the machine's current boot. An unknown boot never matches.
    pub(super) fn of(run: Option<&UnsyncedRun>, boot: Option<&str>) -> Self {
        match run {
            None => Self::NotNoted,
            Some(run) if boot.is_some() && run.boot.as_deref() == boot => Self::AllThere,
            Some(_) => Self::MayBeMissing,
        }
    }

    /// Whether the state leaves a doubt for a log with this end. A log that never began had acknowledged nothing: its first entry is a
    /// membership, which is always synced.
    pub(super) fn leaves_a_doubt(self, end: Option<OpId>) -> bool {
        self == Self::MayBeMissing && end.is_some()
    }

    /// Adjusts the table's verdict about a torn tail, which relies on the file's length: without sync, the length does not show what was
    /// acknowledged. Logs of versions without a record use the current configuration.
    pub(super) fn judge_tail(
        self,
        verdict: Verdict,
        meta: MetaState,
        durability: Durability,
    ) -> Verdict {
        let unsynced = match self {
            Self::MayBeMissing => true,
            Self::AllThere => false,
            Self::NotNoted => durability == Durability::Os,
        };
        match verdict {
            Verdict::CutTail if unsynced && meta != MetaState::Creating => Verdict::CutDoubtedTail,
            verdict => verdict,
        }
    }
}

/// Identifies the machine's current boot: memory not written to a disk is lost between two boots. `None` if the system does not provide it.
#[must_use]
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_names_this_life_of_the_machine() {
        let words = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let id = boot_id().unwrap();
        assert_eq!((id.as_str(), id.len()), (words.trim(), 36));
    }

    #[test]
    fn what_was_not_synced_is_there_as_long_as_the_machine_runs() {
        let run = |boot: Option<&str>| UnsyncedRun {
            boot: boot.map(str::to_owned),
        };
        let (a, b) = (Some("a"), Some("b"));
        let rows = [
            (None, a, Unsynced::NotNoted),
            (None, None, Unsynced::NotNoted),
            (Some(run(a)), a, Unsynced::AllThere),
            (Some(run(a)), b, Unsynced::MayBeMissing),
            (Some(run(a)), None, Unsynced::MayBeMissing),
            (Some(run(None)), a, Unsynced::MayBeMissing),
            (Some(run(None)), None, Unsynced::MayBeMissing),
        ];
        for (run, boot, expected) in rows {
            let found = Unsynced::of(run.as_ref(), boot);
            assert_eq!(found, expected, "{run:?}, now {boot:?}");
        }
    }

    #[test]
    fn a_torn_tail_goes_by_how_the_log_was_written() {
        use Durability::{Fsync, Os};
        use MetaState::{Agrees, Creating};
        let rows = [
            (Unsynced::NotNoted, Agrees, Fsync, false),
            (Unsynced::NotNoted, Agrees, Os, true),
            (Unsynced::NotNoted, Creating, Os, false),
            (Unsynced::AllThere, Agrees, Fsync, false),
            (Unsynced::AllThere, Agrees, Os, false),
            (Unsynced::MayBeMissing, Agrees, Fsync, true),
            (Unsynced::MayBeMissing, Agrees, Os, true),
            (Unsynced::MayBeMissing, Creating, Os, false),
        ];
        for (unsynced, meta, durability, doubted) in rows {
            let expected = match doubted {
                true => Verdict::CutDoubtedTail,
                false => Verdict::CutTail,
            };
            let case = format!("{unsynced:?}, {meta:?}, now {durability}");
            let found = unsynced.judge_tail(Verdict::CutTail, meta, durability);
            assert_eq!(found, expected, "{case}");
            let open = unsynced.judge_tail(Verdict::Open, meta, durability);
            assert_eq!(open, Verdict::Open, "{case}");
        }
    }

    #[test]
    fn this_machine_says_the_same_twice() {
        assert_eq!(boot_id(), boot_id());
    }
}
