//! Who applies.

use clap::ValueEnum;
use serde::Serialize;

/// Which row writes this applier lets go on beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Policy {
    Rows,
    Transactions,
    Serial,
    /// Row by row, and commits are free between prefix points.
    RowsSnapshot,
    /// Row by row, and each transaction commits by itself.
    RowsOneByOne,
}

impl Policy {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Transactions => "transactions",
            Self::Serial => "serial",
            Self::RowsSnapshot => "rows_snapshot",
            Self::RowsOneByOne => "rows_one_by_one",
        }
    }

    /// What `witness apply` is told.
    pub(super) fn arguments(self) -> Vec<&'static str> {
        let (policy, order) = match self {
            Self::RowsSnapshot => (Self::Rows.key(), "snapshot"),
            Self::RowsOneByOne => (Self::Rows.key(), "log"),
            other => (other.key(), "log"),
        };
        let mut arguments = vec!["--policy", policy, "--commit-order", order];
        if self == Self::RowsOneByOne {
            arguments.push("--no-batches");
        }
        arguments
    }
}

/// One way to apply a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    /// MySQL's replica as one that may be promoted: it logs what it applies. Commit order preserved, dependencies by WRITESET.
    Native { workers: u32 },
    /// The same with `log_replica_updates = OFF`: it applies faster, and nobody can follow it.
    NativeUnlogged { workers: u32 },
    /// This applier: commits in the log's order, unless the policy says otherwise.
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
