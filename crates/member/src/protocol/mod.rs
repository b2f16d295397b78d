//! Operators' commands: what can be asked of a member, and what it tells while it carries a command out.

mod command;
mod event;
mod mysqld_order;
mod progress;
mod refusal;

pub use command::{OperatorCommand, PurgeWish};
pub use event::{
    CommandEvent, CommandResult, KeptBinlog, KeptFile, ProvisionPlan, Provisioned, PurgeReport,
    SchemaSize,
};
pub use mysqld_order::{MysqldAnswer, MysqldOrder, ReplicateFrom};
pub(crate) use progress::{CommandProgress, done_event};
pub use refusal::{Refusal, RefusalKind};
