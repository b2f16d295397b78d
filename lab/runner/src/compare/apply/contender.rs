//! The compared appliers.

use clap::ValueEnum;
use serde::Serialize;

/// The conflict policy of this applier: it determines which row writes may run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Policy {
    Rows,
    Transactions,
    Serial,
    /// As `Rows`, but each transaction is committed separately.
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

    /// The options of `witness apply` for this policy.
    pub(super) fn arguments(self) -> Vec<&'static str> {
        match self {
            Self::RowsOneByOne => vec!["--policy", Self::Rows.key(), "--no-batches"],
            other => vec!["--policy", other.key()],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Applier {
    /// MySQL's replica as a promotable replica: it writes applied transactions into its binlog, and preserves the commit order.
    /// Dependencies are by WRITESET.
    Native,
    /// MySQL's replica with `log_replica_updates = OFF`. It applies faster, but no replica can follow it.
    NativeUnlogged,
    /// This applier.
    Own(Policy),
}

/// An applier with its number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Contender {
    pub(super) applier: Applier,
    pub(super) workers: u32,
}

impl Contender {
    pub(super) fn key(self) -> String {
        let applier = match self.applier {
            Applier::Native => "native",
            Applier::NativeUnlogged => "native_unlogged",
            Applier::Own(policy) => policy.key(),
        };
        format!("{applier}_{}", self.workers)
    }
}
