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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Applier {
    /// MySQL's replica as one that may be promoted: it logs what it applies. Commit order preserved, dependencies by WRITESET.
    Native,
    /// The same with `log_replica_updates = OFF`: it applies faster, and no replica can follow it.
    NativeUnlogged,
    /// This applier.
    Own(Policy),
}

/// One way to apply a log.
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
