//! Keeps readers away from a primary that was cut off: once this member has not served for longer than its grace period,
//! mysqld is put into `offline_mode`, which closes the sessions of ordinary accounts and refuses new ones, until it is the
//! primary or a replica again. Unlike closing for writes it does not wait behind commits.
//!
//! Not needed for the safety of what is written: a primary that is not the leader's gets no acknowledgement. It bounds for how
//! long somebody may read there what is not the newest any more.
//!
//! A member that hangs, or is dead and stays so, can do none of that: its [`guard()`] does it in its place.

mod guard;
mod offline_mode;
mod raise_and_lower;

pub use crate::read_fence::guard::{
    GuardOptions, GuardStep, KILL_AFTER, MOST_AT_ONCE, Silence, Word, guard,
};
pub(crate) use crate::read_fence::offline_mode::close_sessions;
pub use crate::read_fence::offline_mode::{SetOffline, lower, raise};
pub(crate) use crate::read_fence::raise_and_lower::ReadFence;
