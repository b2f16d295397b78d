//! Operators' commands: what can be asked of a member, and what it tells while it carries a command out.

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
