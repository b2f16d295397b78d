//! One client: greeting, login, then commands until it leaves.

mod client;
mod commands;
mod login;
mod statement_answers;
mod values;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::committed_files::{CommittedFiles, LogCommands};
use crate::consumers::Consumers;
use crate::options::ServerOptions;
pub(crate) use crate::session::client::{Client, Ended};
#[cfg(feature = "fuzzing")]
pub(crate) use crate::session::login::is_read as login_is_read;

pub(crate) struct Shared {
    pub(crate) log: Arc<dyn CommittedFiles>,
    pub(crate) commands: Arc<dyn LogCommands>,
    pub(crate) options: ServerOptions,
    /// Of clients that are let in.
    pub(crate) places: Semaphore,
    pub(crate) consumers: Consumers,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
}
