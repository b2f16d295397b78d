//! One client: greeting, login, then commands until it leaves.

mod authentication;
mod client;
mod greeting;
mod login;
mod statements;
mod user_variables;
mod values;

pub(crate) use client::{Client, Ended};
