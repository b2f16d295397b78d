//! One client: greeting, login, then commands until it leaves.

mod client;
mod login;
mod statements;
mod values;

pub(crate) use crate::session::client::{Client, Ended};
