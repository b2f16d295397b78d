//! Who applies.

use clap::ValueEnum;
use serde::Serialize;

/// Which row writes this applier lets continue concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Policy {
    Rows,
    Transactions,
    Serial,
    /// Row by row, and each transaction commits by itself.
    RowsOneByOne,
}

impl Policy {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Transactions => "transactions",
            Self::Serial => "serial",
            Self::RowsOneByOne => "rows_one_by_one",
        }
    }

    /// Options of `witness apply`.
    pub(super) fn arguments(self) -> Vec<&'static str> {
        match self {
            Self::RowsOneByOne => vec!["--policy", Self::Rows.key(), "--no-batches"],
            other => vec!["--policy", other.key()],
        }
    }
}

/// One way to apply a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    /// MySQL's replica as one that may be promoted: it logs what it applies. Commit order preserved, dependencies by WRITESET.
    Native { workers: u32 },
    /// The same with `log_replica_updates = OFF`: it applies faster, and no replica can follow it.
    NativeUnlogged { workers: u32 },
    /// This applier.
    Own { policy: Policy, workers: u32 },
}

impl Contender {
    pub(super) fn key(self) -> String {
        match self {
            Self::Native { workers } => format!("native_{workers}"),
            Self::NativeUnlogged { workers } => format!("native_unlogged_{workers}"),
            Self::Own { policy, workers } => format!("{}_{workers}", policy.key()),
        }
    }

    pub(super) fn workers(self) -> u32 {
        match self {
            Self::Native { workers }
            | Self::NativeUnlogged { workers }
            | Self::Own { workers, .. } => workers,
        }
    }
}
