//! Operators' commands: commands to a member, and its events while it executes them.

mod command;
mod event;
mod refusal;

pub use crate::protocol::command::{
    MysqldAnswer, MysqldOrder, OperatorCommand, Order, PurgeRequest, ReplicateFrom,
};
pub use crate::protocol::event::{
    CommandEvent, CommandResult, KeptBinlog, KeptFile, ProvisionPlan, Provisioned, PurgeReport,
    Reloaded, SchemaSize,
};
pub(crate) use crate::protocol::event::{CommandProgress, done_event};
pub use crate::protocol::refusal::{Refusal, RefusalKind};
