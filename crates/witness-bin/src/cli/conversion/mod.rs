//! `witness enable-raft` and `witness disable-raft`: from plain replication into a ring and back. Both look at everybody, make a plan
//! (`mysqld_controller::conversion`, pure), and have the members carry it out one step after the other. What is done is found out by
//! looking, so that a run that was killed is simply run again; the journal in the data directory says what was done when.

mod course;
mod disable;
mod enable;
mod journal;
mod one_at_a_time;
mod stock;
mod undertaking;
mod write_pause;

pub(crate) use disable::{DisableArgs, run as disable};
pub(crate) use enable::{EnableArgs, run as enable};
