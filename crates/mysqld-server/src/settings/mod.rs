//! The settings of mysqld that make commits wait for the ring. [`preflight()`] checks them and [`Plan`] has the SQL that fixes findings,
//! both pure; [`observe`] and [`apply`] communicate with the server.

mod finding;
mod grants;
mod observed;
mod own_account;
mod persisted;
mod plan;
mod preflight;
mod probe;

pub(crate) use crate::settings::finding::TIMEOUT_MS;
pub use crate::settings::finding::{
    Check, Finding, Fix, LARGEST_CACHE, MEMBER_ACKS, Requirements, Severity, UNREACHABLE_ACKS,
    is_effectively_infinite, keeps_replicas_from_releasing,
};
pub use crate::settings::grants::{Grants, NATIVE_RIGHTS, Privilege, native_grants, rows_grants};
pub use crate::settings::observed::{
    Depth, Observed, SemiSyncNames, SemiSyncReplica, checksum_named, says_on,
};
pub use crate::settings::own_account::{Account, Login, OwnAccount, log_in};
pub(crate) use crate::settings::persisted::{PersistedValues, contradicts, not_persisted};
pub use crate::settings::persisted::{WHY, contradicting, persist_start, reset, reset_statement};
pub use crate::settings::plan::{FORCE_REDO_LOG, Phase, Plan, Statement};
pub use crate::settings::preflight::preflight;
pub use crate::settings::probe::{
    ApplyError, CommitLook, Committing, StopWaitingError, apply, await_acks, binlog_filters,
    commits, observe, observe_again, semi_sync_clients, server_clock, stop_waiting_for_acks,
};
pub(crate) use crate::settings::probe::{switch_off, unless_refused, wait_as_a_plain_source};
