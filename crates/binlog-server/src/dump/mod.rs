//! Serving the log to a consumer: what it asked for, where that begins, and the events on their way.

mod beginning;
mod binlog_events;
mod feed;
mod made_up;
mod request;
mod sending;

pub(crate) use request::{Request, parse_register};
pub(crate) use sending::run;
