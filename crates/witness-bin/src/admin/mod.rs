//! Operators' commands: what can be asked of a member, what it tells while it carries a command out,
//! and the operator's end, which finds the member that can do it. The member's end is in `node`.

mod command;
mod event;
mod mysqld_order;
mod operator;
mod place;
mod refusal;
#[cfg(test)]
mod refusal_sentences;

pub use command::{OperatorCommand, PurgeWish};
pub use event::{
    CommandEvent, CommandResult, KeptBinlog, KeptFile, ProvisionPlan, Provisioned, PurgeReport,
    SchemaSize,
};
pub use mysqld_order::{MysqldAnswer, MysqldOrder, ReplicateFrom};
pub use operator::{Operator, Told};
pub use place::{Directory, Place};
pub use refusal::{Refusal, RefusalKind};
