//! Serving the log to a consumer: what it asked for, where that begins, and the events on their way.

mod binlog_events;
mod feed;
mod request;
mod sending;

pub(crate) use crate::dump::request::{Request, parse_register};
pub(crate) use crate::dump::sending::run;
