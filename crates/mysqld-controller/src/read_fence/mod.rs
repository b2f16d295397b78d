//! Blocks readers of an isolated primary. Once this member has not served for longer than its grace period, it puts mysqld into
//! `offline_mode`. That closes the sessions of ordinary accounts and refuses new ones, until mysqld is the primary or a replica again.
//! Unlike closing for writes it does not wait for commits.
//!
//! The safety of writes does not need it: a primary that is not the leader's gets no ACK. It bounds how long
//! clients may read stale data there.
//!
//! A member that hangs, or is dead and stays so, cannot do that: its [`guard()`] does it instead.

mod guard;
mod raise_and_lower;

pub use crate::read_fence::guard::{
    GuardOptions, GuardStep, KILL_AFTER, MOST_AT_ONCE, Silence, Word, guard,
};
pub(crate) use crate::read_fence::raise_and_lower::ReadFence;
