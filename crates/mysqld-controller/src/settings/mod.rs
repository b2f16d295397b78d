//! The settings with which a mysqld's commits wait for the ring: observed, judged, and set.
//! [`preflight()`] judges and [`Plan`] contains the SQL that fixes findings, both pure; [`observe`] and
//! [`apply`] communicate with the server.

mod finding;
mod grants;
mod left_out;
mod no_waiting;
mod observed;
mod old_sessions;
mod own_account;
mod persisted;
mod plan;
mod preflight;
mod probe;

pub use crate::settings::finding::{
    Check, Finding, Fix, LARGEST_CACHE, Requirements, Severity, is_effectively_infinite,
};
pub(crate) use crate::settings::finding::{
    MEMBER_ACKS, TIMEOUT_MS, UNREACHABLE_ACKS, keeps_replicas_from_releasing,
};
pub use crate::settings::grants::{Grants, NATIVE_RIGHTS, Privilege, native_grants, rows_grants};
pub(crate) use crate::settings::left_out::{filters_of_channel, filters_of_server, lenience};
pub use crate::settings::no_waiting::{StopWaitingError, stop_waiting_for_acks};
pub(crate) use crate::settings::no_waiting::{await_acks, switch_off, wait_as_a_plain_source};
pub(crate) use crate::settings::observed::says_on;
pub use crate::settings::observed::{Depth, Observed, SemiSyncNames, SemiSyncReplica};
pub(crate) use crate::settings::old_sessions::end_statement_logging;
pub use crate::settings::own_account::{Account, Login, OwnAccount, log_in};
pub(crate) use crate::settings::persisted::{
    PersistedValues, WHY, contradicting, contradicts, not_persisted, persist_start, reset,
    reset_start, reset_statement,
};
pub(crate) use crate::settings::plan::FORCE_REDO_LOG;
pub use crate::settings::plan::{Phase, Plan, Statement};
pub use crate::settings::preflight::preflight;
pub use crate::settings::probe::{ApplyError, apply, binlog_filters, observe, observe_again};
pub(crate) use crate::settings::probe::{
    CommitLook, Committing, commits, semi_sync_clients, server_clock,
};
